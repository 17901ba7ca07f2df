"""One limit for each caller, whichever process they reach."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from e2e.support.http_server import served
from labour.app import build
from labour.settings import Settings
from tests.labour_parts import assert_problem, plan

LIMIT = 5
LABOURS = "/api/v1/labours"
NOTE = {"kind": "private", "text": "Only for me."}


@pytest.fixture
async def notes(labour_client: httpx.AsyncClient, labour_engine: AsyncEngine) -> str:
    """Where Ada can write as many private notes as she likes, in a window that is open for an hour: no clock decides here."""
    notes = f"{await plan(labour_client)}/updates"
    await _execute(labour_engine, "UPDATE rate_limit SET count = 0, ends_at = now() + interval '1 hour'")
    return notes


@pytest.fixture
async def clients(labour_url: str) -> AsyncIterator[list[httpx.AsyncClient]]:
    """Two processes of the API on one database; Ada speaks."""
    settings = Settings.load(
        {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "RATE_LIMIT_PER_MINUTE": str(LIMIT)}
    )
    ada = speaking_as("ada")
    async with AsyncExitStack() as stack:
        urls = [await stack.enter_async_context(served(build(settings))) for _ in range(2)]
        yield [await stack.enter_async_context(httpx.AsyncClient(base_url=url, headers=ada)) for url in urls]


async def _execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def _known(engine: AsyncEngine) -> dict[str, int]:
    async with engine.connect() as connection:
        rows = await connection.execute(text("SELECT who, count FROM rate_limit"))
        return {row[0]: row[1] for row in rows}


async def test_two_processes_share_one_limit(clients: list[httpx.AsyncClient], notes: str) -> None:
    for number in range(LIMIT):
        assert (await clients[number % 2].post(notes, json=NOTE)).status_code == 201

    for client in clients:
        refused = await client.post(notes, json=NOTE)

        assert_problem(refused, 429, "rate-limited")
        assert 3500 < int(refused.headers["retry-after"]) <= 3600
        assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == (str(LIMIT), "0")
        assert len((await client.get(notes)).json()["items"]) == LIMIT


async def test_thirty_at_once_never_let_more_than_the_limit_through(
    clients: list[httpx.AsyncClient], notes: str
) -> None:
    answers = await asyncio.gather(*(clients[number % 2].post(notes, json=NOTE) for number in range(30)))

    assert sorted(answer.status_code for answer in answers) == [201] * LIMIT + [429] * (30 - LIMIT)
    assert len((await clients[0].get(notes)).json()["items"]) == LIMIT


async def test_when_the_window_has_ended_a_new_one_begins(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await _execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")
    assert_problem(await clients[0].post(notes, json=NOTE), 429, "rate-limited")

    await _execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")

    assert (await clients[0].post(notes, json=NOTE)).status_code == 201
    assert await _known(labour_engine) == {"caller:ada": 1}


async def test_a_new_window_forgets_a_few_that_have_ended_and_none_that_is_open(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await _execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")
    for prefix, sign in (("gone", "-"), ("open", "+")):
        await _execute(
            labour_engine,
            f"INSERT INTO rate_limit SELECT '{prefix}' || n, 1, now() {sign} interval '1 hour'"
            " FROM generate_series(1, 15) n",
        )

    await clients[0].post(notes, json=NOTE)

    known = await _known(labour_engine)
    assert len([who for who in known if who.startswith("gone")]) == 5
    assert len([who for who in known if who.startswith("open")]) == 15


async def test_reading_is_not_counted_and_not_refused(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await _execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")

    answers = [await clients[0].get(path) for path in (LABOURS, "/health/ready", "/schema/openapi.json")]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert await _known(labour_engine) == {"caller:ada": LIMIT}


async def test_what_was_refused_for_another_reason_was_tried_and_counts(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    assert_problem(await clients[0].post(notes, json={}), 400, "invalid-request")

    assert await _known(labour_engine) == {"caller:ada": 1}


async def test_whoever_does_not_say_who_they_are_is_counted_by_address(
    clients: list[httpx.AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    assert_problem(await clients[0].post(notes, json=NOTE, headers={"Authorization": ""}), 401, "not-authorized")

    assert await _known(labour_engine) == {"caller:ada": 0, "address:127.0.0.1": 1}
