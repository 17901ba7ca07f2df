"""Each caller has one rate limit for all processes of the API, which share their counts; and a token is verified once."""

import asyncio
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import jwt
import pytest
from httpx import AsyncClient, Response
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from servicekit.http.rate_limit import RateLimit
from tests.labour_parts import api_process, assert_problem, execute, fetch, plan

LIMIT = 5
LABOURS = "/api/v1/labours"
NOTE = {"kind": "private", "text": "Only for me."}


@pytest.fixture
async def notes(labour_client: AsyncClient, labour_engine: AsyncEngine) -> str:
    """The path of Ada's private notes, in a window of an hour, so that no test depends on the clock."""
    notes = f"{await plan(labour_client)}/updates"
    await eventually(lambda: _known(labour_engine), lambda known: known == {"caller:ada": 1})
    await execute(labour_engine, "UPDATE rate_limit SET count = 0, ends_at = now() + interval '1 hour'")
    return notes


@pytest.fixture
async def clients(labour_url: str) -> AsyncIterator[list[AsyncClient]]:
    """Two processes of the API on one database."""
    limit = {"RATE_LIMIT_PER_MINUTE": str(LIMIT)}
    async with api_process(labour_url, **limit) as one, api_process(labour_url, **limit) as two:
        yield [one, two]


async def _known(engine: AsyncEngine) -> dict[str, int]:
    """The shared count of each caller's changes, without the counts of reads."""
    return dict(
        tuple(row) for row in await fetch(engine, "SELECT who, count FROM rate_limit WHERE who NOT LIKE 'reads of %'")
    )


async def _eventually_refused(client: AsyncClient, notes: str) -> Response:
    return await eventually(lambda: client.post(notes, json=NOTE), lambda answer: answer.status_code == 429)


async def test_thirty_at_once_never_let_more_than_the_limit_through_a_process(
    clients: list[AsyncClient], notes: str
) -> None:
    answers = await asyncio.gather(*(clients[0].post(notes, json=NOTE) for _ in range(30)))

    assert sorted(answer.status_code for answer in answers) == [201] * LIMIT + [429] * (30 - LIMIT)
    assert len((await clients[0].get(notes)).json()["items"]) == LIMIT
    for refused in (answer for answer in answers if answer.status_code == 429):
        assert_problem(refused, 429, "rate-limited")
        assert (refused.headers["ratelimit-limit"], refused.headers["ratelimit-remaining"]) == (str(LIMIT), "0")


async def test_what_one_process_has_counted_counts_in_every_other(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    for _ in range(LIMIT):
        assert (await clients[0].post(notes, json=NOTE)).status_code == 201
    await eventually(lambda: _known(labour_engine), lambda known: known == {"caller:ada": LIMIT})

    refused = await _eventually_refused(clients[1], notes)

    assert_problem(refused, 429, "rate-limited")
    assert 3500 < int(refused.headers["retry-after"]) <= 3600  # the window that the other process has opened


async def test_while_the_database_is_unavailable_a_process_counts_alone_and_shares_its_counts_afterwards(
    postgres: TemporaryServer, labour_engine: AsyncEngine
) -> None:
    limit = RateLimit(labour_engine, limit=LIMIT)
    await asyncio.to_thread(postgres.stop)
    try:
        used = [limit.use("ada").allowed for _ in range(LIMIT + 1)]
        with pytest.raises(OSError, match=r"[Cc]onnect"):
            await limit.share()
    finally:
        await asyncio.to_thread(postgres.start)

    await limit.share()

    assert used == [True] * LIMIT + [False]
    assert await _known(labour_engine) == {"ada": LIMIT + 1}


async def test_when_the_window_has_ended_a_new_one_begins(labour_engine: AsyncEngine) -> None:
    limit = RateLimit(labour_engine, limit=LIMIT, window=timedelta(hours=1))
    for _ in range(LIMIT):
        limit.use("ada")
    await limit.share()
    assert not limit.use("ada").allowed
    await limit.share()
    await execute(labour_engine, "UPDATE rate_limit SET ends_at = now() - interval '1 second'")

    another = RateLimit(labour_engine, limit=LIMIT)

    assert another.use("ada").allowed
    await another.share()
    assert await _known(labour_engine) == {"ada": 1}


async def test_sharing_deletes_windows_that_have_ended_and_none_that_is_open(labour_engine: AsyncEngine) -> None:
    for prefix, sign in (("gone", "-"), ("open", "+")):
        await execute(
            labour_engine,
            f"INSERT INTO rate_limit SELECT '{prefix}' || n, 1, now() {sign} interval '1 hour'"
            " FROM generate_series(1, 15) n",
        )

    await RateLimit(labour_engine, limit=LIMIT).share()

    assert {who[:4] for who in await _known(labour_engine)} == {"open"}


async def test_reads_are_counted_apart_a_caller_without_changes_left_may_still_read(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    await _eventually_refused(clients[0], notes)

    answers = [await clients[0].get(path) for path in (LABOURS, "/health/ready", "/schema/openapi.json")]

    assert [answer.status_code for answer in answers] == [200, 200, 200]


async def test_a_caller_reads_so_often_in_a_minute_and_what_is_no_read_of_theirs_goes_on(labour_url: str) -> None:
    async with api_process(labour_url, READ_LIMIT_PER_MINUTE="3") as client:
        labour = await plan(client)
        answers = await asyncio.gather(*(client.get(labour) for _ in range(10)))

        assert sorted(answer.status_code for answer in answers) == [200] * 3 + [429] * 7
        refused = next(answer for answer in answers if answer.status_code == 429)
        assert "too many reads" in assert_problem(refused, 429, "rate-limited")["detail"]
        assert 1 <= int(refused.headers["retry-after"]) <= 60
        assert (await client.put(f"{labour}/begin")).status_code == 200
        assert (await client.get(LABOURS, headers=speaking_as("eve"))).status_code == 200
        assert (await client.get("/health/ready")).status_code == 200


async def test_what_was_refused_for_another_reason_was_tried_and_counts(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str
) -> None:
    assert_problem(await clients[0].post(notes, json={}), 400, "invalid-request")

    await eventually(lambda: _known(labour_engine), lambda known: known == {"caller:ada": 1})


@pytest.mark.parametrize("authorization", ["", "Bearer forged"])
async def test_a_request_without_a_valid_token_is_refused_first_and_never_counted(
    clients: list[AsyncClient], labour_engine: AsyncEngine, notes: str, authorization: str
) -> None:
    for _ in range(LIMIT + 1):
        answer = await clients[0].post(notes, content=b"no JSON", headers={"Authorization": authorization})
        assert_problem(answer, 401, "not-authorized")

    assert (await clients[0].post(notes, json=NOTE)).status_code == 201
    known = await eventually(lambda: _known(labour_engine), lambda known: known["caller:ada"] == 1)
    assert known == {"caller:ada": 1}  # counts are shared in the order in which they were made


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
