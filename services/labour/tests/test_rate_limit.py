"""Each caller has one rate limit for all processes of the API; and the token is verified once a request."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import jwt
import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from tests.labour_parts import api_process, assert_problem, execute, fetch, plan

LIMIT = 5
LABOURS = "/api/v1/labours"
NOTE = {"kind": "private", "text": "Only for me."}


@pytest.fixture
async def notes(labour_client: AsyncClient, labour_engine: AsyncEngine) -> str:
    """The path of Ada's private notes, in a window of an hour, so that no test depends on the clock."""
    notes = f"{await plan(labour_client)}/updates"
    await execute(labour_engine, "UPDATE rate_limit SET count = 0, ends_at = now() + interval '1 hour'")
    return notes


@pytest.fixture
async def clients(labour_url: str) -> AsyncIterator[list[AsyncClient]]:
    """Two processes of the API on one database."""
    limit = {"RATE_LIMIT_PER_MINUTE": str(LIMIT)}
    async with api_process(labour_url, **limit) as one, api_process(labour_url, **limit) as two:
        yield [one, two]


async def _known(engine: AsyncEngine) -> dict[str, int]:
    return dict(tuple(row) for row in await fetch(engine, "SELECT who, count FROM rate_limit"))


async def test_two_processes_share_one_limit(clients: list[AsyncClient], notes: str) -> None:
    for number in range(LIMIT):
        assert (await clients[number % 2].post(notes, json=NOTE)).status_code == 201

    for client in clients:
        refused = await client.post(notes, json=NOTE)

        assert_problem(refused, 429, "rate-limited")
        assert 3500 < int(refused.headers["retry-after"]) <= 3600
        assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == (str(LIMIT), "0")
        assert len((await client.get(notes)).json()["items"]) == LIMIT


async def test_thirty_at_once_never_let_more_than_the_limit_through(clients: list[AsyncClient], notes: str) -> None:
    answers = await asyncio.gather(*(clients[number % 2].post(notes, json=NOTE) for number in range(30)))

    assert sorted(answer.status_code for answer in answers) == [201] * LIMIT + [429] * (30 - LIMIT)
    assert len((await clients[0].get(notes)).json()["items"]) == LIMIT


async def test_when_the_window_has_ended_a_new_one_begins(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")
    assert_problem(await clients[0].post(notes, json=NOTE), 429, "rate-limited")

    await execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")

    assert (await clients[0].post(notes, json=NOTE)).status_code == 201
    assert await _known(labour_engine) == {"caller:ada": 1}


async def test_every_tenth_new_window_forgets_up_to_a_hundred_that_have_ended_and_none_that_is_open(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")
    for prefix, sign in (("gone", "-"), ("open", "+")):
        await execute(
            labour_engine,
            f"INSERT INTO rate_limit SELECT '{prefix}' || n, 1, now() {sign} interval '1 hour'"
            " FROM generate_series(1, 115) n",
        )

    await clients[0].post(notes, json=NOTE)

    known = await _known(labour_engine)
    assert len([who for who in known if who.startswith("gone")]) in (15, 16)  # Ada's own has ended, too
    assert len([who for who in known if who.startswith("open")]) == 115


async def test_reading_is_not_counted_and_not_refused(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await execute(labour_engine, f"UPDATE rate_limit SET count = {LIMIT}")

    answers = [await clients[0].get(path) for path in (LABOURS, "/health/ready", "/schema/openapi.json")]

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert await _known(labour_engine) == {"caller:ada": LIMIT}


async def test_what_was_refused_for_another_reason_was_tried_and_counts(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    assert_problem(await clients[0].post(notes, json={}), 400, "invalid-request")

    assert await _known(labour_engine) == {"caller:ada": 1}


async def test_a_request_without_a_token_is_counted_by_address(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    assert_problem(await clients[0].post(notes, json=NOTE, headers={"Authorization": ""}), 401, "not-authorized")

    assert await _known(labour_engine) == {"caller:ada": 0, "address:127.0.0.1": 1}


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("token", ["good", "forged"])
async def test_the_token_is_verified_once_a_request(
    clients: list[AsyncClient], notes: str, method: str, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    verified = list[str]()

    def counting(token: str, *arguments: Any, **named: Any) -> Any:
        verified.append(token)
        return decode(token, *arguments, **named)

    decode = jwt.decode
    monkeypatch.setattr(jwt, "decode", counting)
    headers = {} if token == "good" else {"Authorization": "Bearer forged"}
    answer = await clients[0].request(method, notes, json=NOTE, headers=headers)

    assert answer.is_success if token == "good" else answer.status_code == 401
    assert len(verified) == 1
