"""Operators retry, discard and replay outbox rows, one by one or by the group, while relays publish."""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import Any

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.bus import UnreliableBus, pull_sample_events
from e2e.support.sample_events import AlsoHappened, Happened, all_published, emit, outbox_rows
from e2e.support.waiting import eventually
from messaging import outbox_admin
from messaging.bus import Outgoing
from messaging.errors import PublishRejected
from messaging.outbox import count_topics
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitsOfWork


class Rejecting:
    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        raise PublishRejected("never")


@pytest.mark.parametrize("settle", [outbox_admin.retry, outbox_admin.discard])
async def test_one_command_frees_the_key_of_a_parked_row(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, settle: Callable[..., Awaitable[object]]
) -> None:
    await emit(labour_units, Happened("sick", 1), Happened("sick", 2))
    rejecting = Rejecting()
    once = {"max_attempts": 1, "lanes": 64}
    await Relay(labour_engine, rejecting, **once).run_once()
    assert (await Relay(labour_engine, bus, **once).run_once()).published == 0
    [parked] = await outbox_rows(labour_engine, parked=True)

    async with labour_engine.begin() as connection:
        await settle(connection, parked.event_id)
    done = await Relay(labour_engine, bus, lanes=64).run_once()

    discarded = settle is outbox_admin.discard
    assert done.published == (1 if discarded else 2)
    assert [event.number for event in await pull_sample_events(bus)] == ([2] if discarded else [1, 2])


async def test_rows_that_are_parked_or_discarded_are_counted_by_topic(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await emit(labour_units, Happened("parked", 1), AlsoHappened("given up", 1), AlsoHappened("given up", 2))
    await Relay(labour_engine, Rejecting(), max_attempts=1, lanes=64).run_once()
    [given_up] = [row for row in await outbox_rows(labour_engine, parked=True) if row.type == AlsoHappened.type]

    async with labour_engine.begin() as connection:
        await outbox_admin.discard(connection, given_up.event_id)
        recorded, held = await count_topics(connection), await count_topics(connection, held=True)

    assert recorded == {Happened.type: 1, AlsoHappened.type: 2}
    assert held == {Happened.type: 1, AlsoHappened.type: 1}


async def test_parked_rows_are_seen_and_freed_by_the_group_in_batches(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    await emit(
        labour_units, *(Happened(f"a{number}", 1) for number in range(5)), AlsoHappened("b", 1), Happened("b", 2)
    )
    await Relay(labour_engine, Rejecting(), max_attempts=1, lanes=64).run_once()

    async with labour_engine.begin() as connection:
        groups = await outbox_admin.parked_groups(connection)
    batches, after = list[outbox_admin.Batch](), 0
    while not batches or batches[-1].next:
        async with labour_engine.begin() as connection:
            wanted: dict[str, Any] = {"type": Happened.type, "reason": "NEVER", "after": after, "limit": 2}
            batches.append(await outbox_admin.change_parked(connection, discard=False, **wanted))
        after = batches[-1].next or 0
    done = await Relay(labour_engine, bus, lanes=64).run_once()

    assert [(group.type, group.reason, group.count, group.labours) for group in groups] == [
        (Happened.type, "never", 5, 5),
        (AlsoHappened.type, "never", 1, 1),
    ]
    assert [len(batch.items) for batch in batches] == [2, 2, 1]
    assert done.published == 5  # "b" is held by its first row, which is still parked
    assert {event.key for event in await pull_sample_events(bus)} == {f"a{number}" for number in range(5)}


async def test_a_replay_publishes_what_was_published_in_order_and_leaves_the_rest_alone(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    await emit(labour_units, *(Happened("a", number) for number in range(4)), Happened("b", 0))
    await Relay(labour_engine, bus, lanes=64).run_once()
    await emit(labour_units, Happened("parked", 0), Happened("discarded", 0))
    await Relay(labour_engine, Rejecting(), max_attempts=1, lanes=64).run_once()
    await emit(labour_units, Happened("waiting", 0))
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE outbox SET discarded_at = now() WHERE ordering_key = 'discarded'"))
    assert len(await pull_sample_events(bus)) == 5

    async with labour_engine.begin() as connection:
        chosen = outbox_admin.published(since=None, until=None, ordering_key=None, type=Happened.type)
        rehearsed = await outbox_admin.replay(connection, chosen, dry_run=True, after=0, limit=100)
        assert await outbox_admin.replays(connection) == outbox_admin.Replays(waiting=0, parked=0)
    async with labour_engine.begin() as connection:
        replayed = await outbox_admin.replay(connection, chosen, dry_run=False, after=0, limit=100)
        assert await outbox_admin.replays(connection) == outbox_admin.Replays(waiting=5, parked=0)
    await Relay(labour_engine, bus, lanes=64).run_once()

    assert rehearsed == replayed
    again = [(event.key, event.number) for event in await pull_sample_events(bus)]
    assert sorted(again) == [("a", 0), ("a", 1), ("a", 2), ("a", 3), ("b", 0), ("waiting", 0)]
    assert [number for key, number in again if key == "a"] == [0, 1, 2, 3]
    async with labour_engine.begin() as connection:
        assert await outbox_admin.replays(connection) == outbox_admin.Replays(waiting=0, parked=0)


async def test_replays_while_two_relays_and_a_writer_are_at_work_keep_the_order_of_first_times(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    line, stop = UnreliableBus(bus, seed=3), asyncio.Event()
    fast: dict[str, Any] = {"batch_size": 25, "lanes": 8, "poll_interval": 0.01, "retry_base": 0.001, "retry_cap": 0.01}
    relays = [Relay(labour_engine, line, max_attempts=1000, **fast) for _ in range(2)]
    running = [asyncio.create_task(one.run(stop)) for one in relays]
    keys = [f"labour-{number}" for number in range(10)]
    replayed = 0
    await emit(labour_units, *(Happened(key, 0) for key in keys))
    await eventually(lambda: all_published(labour_engine), what="there is something to replay")

    for number in range(1, 15):
        await emit(labour_units, *(Happened(key, number) for key in keys))
        chosen = outbox_admin.published(since=None, until=None, ordering_key=keys[number % 10], type=None)
        async with labour_engine.begin() as connection:
            replayed += len((await outbox_admin.replay(connection, chosen, dry_run=False, after=0, limit=7)).items)
    await eventually(lambda: all_published(labour_engine), what="everything is published")
    stop.set()
    await asyncio.gather(*running)

    assert replayed > 0
    for key in keys:
        assert list(dict.fromkeys(line.accepted[key])) == list(range(15))
