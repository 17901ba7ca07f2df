"""Live updates: each reader learns of what they may see, and of nothing else, for as long as they may."""

import asyncio
import time
from collections.abc import AsyncIterator
from typing import NamedTuple

import jwt
import pytest
from httpx import AsyncClient

from e2e.support.api import speaking_as
from labour.http import live
from tests.labour_parts import assert_problem, plan
from tests.live_parts import DEADLINE, NEVER, following, next_event


@pytest.fixture
def wake_ups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", NEVER)


class Later:
    """The clock of the streams, which the test can set forward."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def time(self) -> float:
        return time.time() + self.seconds

    def monotonic(self) -> float:
        return time.monotonic() + self.seconds


class Followers(NamedTuple):
    """Two approved subscribers of Ada's labour, which has begun. Only the birth partner may see contractions."""

    labour: str
    grace: AsyncClient
    grace_id: str
    partner: AsyncClient


@pytest.fixture
async def followers(labour_client: AsyncClient) -> AsyncIterator[Followers]:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]
    people, ids = list[AsyncClient](), list[str]()
    for name, phone in (("grace", "+12025550123"), ("paula", "+12025550124")):
        people.append(AsyncClient(base_url=labour_client.base_url, headers=speaking_as(name)))
        body = {"token": token, "name": name, "phone": phone}
        ids.append((await people[-1].post("/api/v1/subscriptions", json=body)).json()["id"])
        assert_problem(await people[-1].get(f"{labour}/events"), 404, "no-such-labour")
        await labour_client.put(f"{labour}/subscribers/{ids[-1]}/approve")
    await labour_client.put(f"{labour}/subscribers/{ids[-1]}/role", json={"role": "birth-partner"})
    await labour_client.put(f"{labour}/begin")
    yield Followers(labour, people[0], ids[0], people[1])
    for one in people:
        await one.aclose()


@pytest.mark.usefixtures("wake_ups_only")
async def test_only_who_may_see_contractions_learns_when_they_begin_and_end(
    labour_client: AsyncClient, followers: Followers
) -> None:
    labour, grace, _, partner = followers
    async with following(grace, labour) as hers, following(partner, labour) as partners:
        assert [(await next_event(lines)).data["phase"] for lines in (hers, partners)] == ["early", "early"]

        contraction = (await labour_client.post(f"{labour}/contractions", json={})).json()
        assert (await next_event(partners)).data["phase"] == "early"
        await labour_client.put(f"{labour}/contractions/{contraction['id']}/end", json={"intensity": 3})
        assert (await next_event(partners)).data["phase"] == "early"
        await labour_client.put(f"{labour}/pushing")

        assert [(await next_event(lines)).data["phase"] for lines in (hers, partners)] == ["pushing", "pushing"]


@pytest.mark.usefixtures("wake_ups_only")
async def test_subscribers_learn_of_a_status_and_not_of_a_private_note_or_of_another_subscriber(
    labour_client: AsyncClient, followers: Followers
) -> None:
    labour, grace, _, partner = followers
    async with following(grace, labour) as hers, following(partner, labour) as partners:
        first = [await next_event(lines) for lines in (hers, partners)]

        await labour_client.post(f"{labour}/updates", json={"kind": "private", "text": "Only for me."})
        await labour_client.post(f"{labour}/subscribers", json={"name": "Alan", "phone": "+12025550199"})
        await labour_client.post(f"{labour}/updates", json={"kind": "status", "text": "All is well."})
        assert [await next_event(lines) for lines in (hers, partners)] == first  # a client fetches the updates now
        await labour_client.put(f"{labour}/pushing")

        assert [(await next_event(lines)).data["phase"] for lines in (hers, partners)] == ["pushing", "pushing"]


@pytest.mark.usefixtures("wake_ups_only")
async def test_what_a_subscriber_may_not_see_does_not_show_in_the_rhythm_of_their_stream(
    labour_client: AsyncClient, followers: Followers, monkeypatch: pytest.MonkeyPatch
) -> None:
    labour, grace, _, partner = followers
    monkeypatch.setattr(live, "time", clock := Later(0))
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", NEVER)
    async with following(grace, labour) as hers, following(partner, labour) as partners, asyncio.timeout(DEADLINE):
        await next_event(hers)
        await next_event(partners)

        for intensity in (1, None):  # two contractions within the time of one heartbeat
            clock.seconds += 0.6 * NEVER
            contraction = (await labour_client.post(f"{labour}/contractions", json={})).json()
            await next_event(partners)
            if intensity:
                end = f"{labour}/contractions/{contraction['id']}/end"
                await labour_client.put(end, json={"intensity": intensity})
                await next_event(partners)

        assert await anext(hers) == ": still here"  # as if nothing had happened


@pytest.mark.parametrize(("method", "path"), [("DELETE", ""), ("PUT", "/block")])
async def test_a_subscriber_follows_their_own_view_until_they_are_removed_or_blocked(
    labour_client: AsyncClient, followers: Followers, method: str, path: str
) -> None:
    labour, grace, grace_id, _ = followers
    async with following(grace, labour) as lines:
        first = await next_event(lines)
        assert first.id is None
        assert set(first.data) == {"id", "mother_name", "phase", "begun_at", "completed_at", "view"}

        await labour_client.request(method, f"{labour}/subscribers/{grace_id}{path}")

        assert await next_event(lines) == ("end", None, {"reason": "no-such-labour"})
        async with asyncio.timeout(DEADLINE):
            assert [line async for line in lines] == []


@pytest.mark.usefixtures("wake_ups_only")
async def test_a_stream_ends_with_its_token_even_if_nothing_happens(
    labour_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", NEVER)
    labour = await plan(labour_client)
    token = speaking_as("ada")["Authorization"].removeprefix("Bearer ")
    expires_at = jwt.decode(token, options={"verify_signature": False})["exp"]
    monkeypatch.setattr(live, "time", Later(expires_at - time.time() - 0.1))

    async with following(labour_client, labour) as lines:
        assert (await next_event(lines)).kind == "labour"
        assert await next_event(lines) == ("end", None, {"reason": "token-expired"})
        async with asyncio.timeout(DEADLINE):
            assert [line async for line in lines] == []


@pytest.mark.usefixtures("wake_ups_only")
async def test_after_the_end_of_its_token_a_stream_tells_nothing_more(
    labour_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", NEVER)
    clock = Later(0)
    monkeypatch.setattr(live, "time", clock)
    labour = await plan(labour_client)

    async with following(labour_client, labour) as lines:
        assert (await next_event(lines)).kind == "labour"
        clock.seconds = 365 * 24 * NEVER
        await labour_client.put(f"{labour}/begin")
        assert await next_event(lines) == ("end", None, {"reason": "token-expired"})
