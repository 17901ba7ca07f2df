"""The statistics through the API: for the mother, and for operators who verify and rebuild them."""

import asyncio
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import httpx
import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from contracts.registry import decode
from e2e.support.waiting import eventually
from labour.application.statistics import react_to_batch
from labour.domain.statistics import TOPICS
from messaging.aggregate import Recorded
from messaging.unit_of_work import UnitsOfWork
from tests.labour_parts import MINUTE, NOW, execute, fetch, plan
from tests.statistics_parts import labour_with, received, statistics_of


async def count_all(engine: AsyncEngine, units: UnitsOfWork) -> None:
    """Count every event in the outbox, as the consumer does."""
    rows = await fetch(engine, "SELECT event_id, topic, payload FROM outbox ORDER BY position DESC")
    events = [(row.event_id, decode(row.topic, 1, row.payload.encode())) for row in rows if row.topic in TOPICS]
    async with units() as uow:
        await react_to_batch(uow, [received(Recorded(event, "", NOW, None, id)) for id, event in events])


async def a_labour(client: AsyncClient) -> str:
    """Two contractions of one minute, five minutes apart."""
    labour = await plan(client)
    for start in (NOW - 10 * MINUTE, NOW - 5 * MINUTE):
        one = (await client.post(f"{labour}/contractions", json={"started_at": start.isoformat()})).json()
        body = {"ended_at": (start + MINUTE).isoformat(), "intensity": 5}
        (await client.put(f"{labour}/contractions/{one['id']}/end", json=body)).raise_for_status()
    return labour


async def test_the_mother_reads_averages_and_the_time_in_each_phase(
    labour_client: AsyncClient, labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    labour = await a_labour(labour_client)
    empty = (await labour_client.get(f"{labour}/statistics")).json()
    await count_all(labour_engine, labour_units)

    running = (await labour_client.get(f"{labour}/statistics")).json()
    await labour_client.put(f"{labour}/pushing")
    complete = (await labour_client.put(f"{labour}/complete")).json()
    await count_all(labour_engine, labour_units)
    final = (await labour_client.get(f"{labour}/statistics")).json()

    assert empty == {
        "contractions": 0, "average_length_seconds": None, "average_interval_seconds": None, "phases": []
    }  # fmt: skip
    assert (running["contractions"], running["average_length_seconds"]) == (2, 60)
    assert running["average_interval_seconds"] == 300
    [early] = running["phases"]
    assert (early["phase"], early["entered_at"]) == ("early", complete["begun_at"])
    assert [one["phase"] for one in final["phases"]] == ["early", "pushing"]
    whole = _time(complete["completed_at"]) - _time(complete["begun_at"])
    assert sum(one["seconds"] for one in final["phases"]) == pytest.approx(whole.total_seconds())


def _time(text: str) -> datetime:
    return datetime.fromisoformat(text).astimezone(UTC)


async def differences(client: AsyncClient, method: str, path: str, **query: Any) -> httpx.Response:
    answer = await client.request(method, f"/operations/statistics/{path}", params=query)
    return answer.raise_for_status()


async def test_a_damaged_balance_is_found_and_rebuilt_from_the_postings(
    labour_client: AsyncClient, labour_operator: AsyncClient, labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    labour = await a_labour(labour_client)
    labour_id = labour.rpartition("/")[2]
    await count_all(labour_engine, labour_units)
    before = (await labour_client.get(f"{labour}/statistics")).json()
    await execute(labour_engine, "UPDATE statistics_balance SET amount = amount + 1 WHERE what = 'contractions'")
    await execute(labour_engine, "DELETE FROM statistics_balance WHERE what = 'length'")
    await execute(labour_engine, f"INSERT INTO statistics_balance VALUES ('{UUID(int=1)}', 'span', 7)")
    damaged = [
        {"labour_id": str(UUID(int=1)), "what": "span", "balance": 7, "postings": 0},
        {"labour_id": labour_id, "what": "contractions", "balance": 3, "postings": 2},
        {"labour_id": labour_id, "what": "length", "balance": 0, "postings": 120_000_000},
    ]

    found = (await differences(labour_operator, "GET", "differences")).json()
    rebuilt = (await differences(labour_operator, "POST", "rebuild")).json()
    left = (await differences(labour_operator, "GET", "differences")).json()

    assert found == rebuilt == {"items": damaged, "next": None}
    assert left == {"items": [], "next": None}
    after = (await labour_client.get(f"{labour}/statistics")).json()
    assert {**after, "phases": []} == {**before, "phases": []}


async def test_labours_are_verified_in_batches(labour_operator: AsyncClient, labour_engine: AsyncEngine) -> None:
    values = ", ".join(f"('{UUID(int=number)}', 'contractions', {number})" for number in range(1, 6))
    await execute(labour_engine, f"INSERT INTO statistics_balance VALUES {values}")

    seen, after = list[int](), str(UUID(int=0))
    while after:
        batch = (await differences(labour_operator, "GET", "differences", after=after, limit=2)).json()
        seen += [item["balance"] for item in batch["items"]]
        after = batch["next"]

    assert seen == [1, 2, 3, 4, 5]


async def test_a_rebuild_waits_for_the_consumer_that_counts_the_same_labour(
    labour_operator: AsyncClient, labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    """Otherwise it would overwrite an amount that it did not see."""
    history = labour_with("start", "end")
    async with labour_units() as uow:
        await react_to_batch(uow, [received(history.recorded[0])])
    await execute(labour_engine, "UPDATE statistics_balance SET amount = amount + 1")

    async def is_waiting() -> bool:
        sessions = "SELECT wait_event_type FROM pg_stat_activity WHERE application_name LIKE 'labour-api%'"
        return "Lock" in await fetch(labour_engine, sessions)

    async with labour_units() as uow:
        await react_to_batch(uow, [received(one) for one in history.recorded[1:]])
        rebuilding = asyncio.create_task(differences(labour_operator, "POST", "rebuild"))
        await eventually(is_waiting, what="the rebuild waits")
    await rebuilding

    assert await statistics_of(labour_engine, history.labour) == history.statistics()
