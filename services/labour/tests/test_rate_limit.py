"""One limit for each caller, whichever process they reach."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from labour.app import build
from labour.settings import Settings
from tests.labour_parts import assert_problem
from tests.support import served

LIMIT = 5
ADA = {"mother_name": "Ada"}
LABOURS = "/api/v1/labours"


@pytest.fixture
async def clients(labour_url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Two processes of the API on one database."""
    settings = Settings.load(
        {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "RATE_LIMIT_PER_MINUTE": str(LIMIT)}
    )
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(build(settings))) for _ in range(2)]
        yield [await stack.enter_async_context(httpx.AsyncClient(base_url=url)) for url in urls]


@pytest.fixture(autouse=True)
async def long_window(labour_engine: AsyncEngine) -> None:
    """Open for an hour, so that the clock decides nothing."""
    await _execute(labour_engine, "INSERT INTO rate_limit VALUES ('127.0.0.1', 0, now() + interval '1 hour')")


async def _execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def _known(engine: AsyncEngine) -> dict[str, int]:
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT who, count FROM rate_limit"))
        return {row[0]: row[1] for row in rows}


async def test_two_processes_share_one_limit(clients: list[httpx.AsyncClient]) -> None:
    for number in range(LIMIT):
        assert (await clients[number % 2].post(LABOURS, json=ADA)).status_code == 201

    for client in clients:
        refused = await client.post(LABOURS, json=ADA)

        assert_problem(refused, 429, "rate-limited")
        assert 3500 < int(refused.headers["retry-after"]) <= 3600
        assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == (str(LIMIT), "0")
        assert len((await client.get(LABOURS)).json()["items"]) == LIMIT


async def test_thirty_at_once_never_let_more_than_the_limit_through(clients: list[httpx.AsyncClient]) -> None:
    answers = await asyncio.gather(*(clients[number % 2].post(LABOURS, json=ADA) for number in range(30)))

    assert sorted(answer.status_code for answer in answers) == [201] * LIMIT + [429] * (30 - LIMIT)
    assert len((await clients[0].get(LABOURS)).json()["items"]) == LIMIT


async def test_when_the_window_has_ended_a_new_one_begins(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine
) -> None:
    await _execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")
    assert_problem(await clients[0].post(LABOURS, json=ADA), 429, "rate-limited")

    await _execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")

    assert (await clients[0].post(LABOURS, json=ADA)).status_code == 201
    assert await _known(labour_engine) == {"127.0.0.1": 1}


async def test_a_new_window_forgets_a_few_that_have_ended_and_none_that_is_open(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine
) -> None:
    await _execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")
    for prefix, sign in (("gone", "-"), ("open", "+")):
        await _execute(
            labour_engine,
            f"INSERT INTO rate_limit SELECT '{prefix}' || n, 1, now() {sign} interval '1 hour'"
            " FROM generate_series(1, 15) n",
        )

    await clients[0].post(LABOURS, json=ADA)

    known = await _known(labour_engine)
    assert len([who for who in known if who.startswith("gone")]) == 5
    assert len([who for who in known if who.startswith("open")]) == 15


async def test_reading_is_not_counted_and_not_refused(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine
) -> None:
    await _execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")

    answers = [await clients[0].get(path) for path in (LABOURS, "/health/ready", "/schema/openapi.json")]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert await _known(labour_engine) == {"127.0.0.1": LIMIT}


async def test_what_was_refused_for_another_reason_was_tried_and_counts(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine
) -> None:
    assert_problem(await clients[0].post(LABOURS, json={}), 400, "invalid-request")

    assert await _known(labour_engine) == {"127.0.0.1": 1}
