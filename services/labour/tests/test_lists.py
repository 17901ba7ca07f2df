"""Every list is bounded: it comes page by page, and without parameters as before."""

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from tests.labour_parts import assert_problem, execute, fetch, plan

SUBSCRIPTIONS = "/api/v1/subscriptions"


async def contractions(client: AsyncClient, labour: str) -> str:
    begin = datetime.now(UTC) - timedelta(hours=1)
    for number in range(3):
        start = begin + timedelta(minutes=number)
        started = await client.post(f"{labour}/contractions", json={"started_at": start.isoformat()})
        end = {"ended_at": (start + timedelta(seconds=30)).isoformat(), "intensity": 5}
        await client.put(f"{labour}/contractions/{started.json()['id']}/end", json=end)
    return f"{labour}/contractions"


async def updates(client: AsyncClient, labour: str) -> str:
    for number in range(3):
        await client.post(f"{labour}/updates", json={"kind": "status", "text": f"status {number}"})
    return f"{labour}/updates"


async def invites(client: AsyncClient, labour: str) -> str:
    for _ in range(3):
        await client.post(f"{labour}/invites", json={})
    return f"{labour}/invites"


async def subscriptions(client: AsyncClient, labour: str) -> str:
    for mother in ("eve", "ida", "joy"):
        own = speaking_as(mother)
        path = (await client.post("/api/v1/labours", json={"mother_name": mother}, headers=own)).headers["location"]
        token = (await client.post(f"{path}/invites", json={}, headers=own)).json()["token"]
        body = {"token": token, "name": "Ada", "phone": "+12025550123"}
        assert (await client.post(SUBSCRIPTIONS, json=body)).status_code == 201
    return SUBSCRIPTIONS


@pytest.mark.parametrize("make", [contractions, updates, invites, subscriptions], ids=lambda make: make.__name__)
async def test_a_list_page_by_page_is_the_list(
    labour_client: AsyncClient, make: Callable[[AsyncClient, str], Awaitable[str]]
) -> None:
    path = await make(labour_client, await plan(labour_client))

    await assert_pages_are_the_list(labour_client, path)


async def test_the_messages_page_by_page_are_the_list(labour_client: AsyncClient, labour_engine: AsyncEngine) -> None:
    labour = await plan(labour_client)
    for number in (3, 1, 2):
        await execute(
            labour_engine,
            f"""INSERT INTO told (notification_id, labour_id, person_id, event_id, event_type, channel, status, rank, at)
                VALUES ('{UUID(int=number)}', '{labour.rpartition("/")[2]}', '{UUID(int=7)}', '{UUID(int=8)}', 'labour.begun',
                    'sms', 'sent', 1, now())""",
        )

    await assert_pages_are_the_list(labour_client, f"{labour}/told")


async def assert_pages_are_the_list(labour_client: AsyncClient, path: str) -> None:
    whole = (await labour_client.get(path)).json()
    assert (len(whole["items"]), whole["next"]) == (3, None)

    pages = list[Any]()
    after: dict[str, str] = {}
    while not pages or pages[-1]["next"]:
        answer = await labour_client.get(path, params={"limit": 1, **after})
        assert answer.status_code == 200, answer.text
        pages.append(answer.json())
        after = {"after": pages[-1]["next"]}

    assert [item for page in pages for item in page["items"]] == whole["items"]
    assert [len(page["items"]) for page in pages] == [1, 1, 1]
    for bad in ({"limit": 0}, {"limit": 6001}, {"limit": 10**30}, {"after": "x"}, {"after": "2026-01-01T00:00:00"}):
        assert_problem(await labour_client.get(path, params=bad), 400, "invalid-request")


async def test_a_contraction_that_is_deleted_between_two_pages_does_not_end_the_list(
    labour_client: AsyncClient,
) -> None:
    path = await contractions(labour_client, await plan(labour_client))
    first = (await labour_client.get(path, params={"limit": 1})).json()
    await labour_client.delete(f"{path}/{first['items'][0]['id']}")

    rest = (await labour_client.get(path, params={"after": first["next"]})).json()

    assert len(rest["items"]) == 2


async def test_a_labour_has_so_many_updates_and_a_deleted_one_makes_room(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    status = {"kind": "status", "text": "Resting"}
    await labour_client.post(f"{labour}/updates", json=status)
    await execute(
        labour_engine,
        "INSERT INTO labour_update SELECT gen_random_uuid(), labour_id, kind, text, posted_at"
        " FROM labour_update, generate_series(2, 1000)",
    )

    refused = await labour_client.post(f"{labour}/updates", json=status)
    [some] = await fetch(labour_engine, "SELECT id FROM labour_update LIMIT 1")
    await labour_client.delete(f"{labour}/updates/{some}")

    assert_problem(refused, 409, "too-many-updates")
    assert (await labour_client.post(f"{labour}/updates", json=status)).status_code == 201
    assert len((await labour_client.get(f"{labour}/updates", params={"limit": 1000})).json()["items"]) == 1000


async def test_the_problem_of_every_bound_says_what_to_do(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    for _ in range(20):
        assert (await labour_client.post(f"{labour}/invites", json={})).status_code == 201

    problem = assert_problem(await labour_client.post(f"{labour}/invites", json={}), 409, "too-many-valid-invites")

    assert problem["detail"] == "A labour has at most 20 valid invites. Revoke one first, or share it."
    await execute(labour_engine, "UPDATE labour SET announcements = 100")
    more = await labour_client.post(f"{labour}/updates", json={"kind": "announcement", "text": "More!"})
    assert_problem(more, 409, "too-many-announcements")
