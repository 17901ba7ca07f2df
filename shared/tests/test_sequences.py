"""The events of a labour are numbered without gaps, and a consumer that remembers the last number handles each once, in order."""

import asyncio
import random
from collections.abc import Collection, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from e2e.support.crash import crash_at
from e2e.support.sample_events import Happened, emit
from messaging import consumer as consumer_module
from messaging import unit_of_work
from messaging.bus import Message
from messaging.consumer import Consumer, Received, Verdict
from messaging.database import driver_connection
from messaging.envelope import Envelope, attributes, open_envelope
from messaging.faults import FaultPoint
from messaging.publishing import Row
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from messaging.watermarks import Watermarks

ACK, NACK = Verdict.ACK, Verdict.NACK
SUBSCRIPTION = f"tests.{Happened.type}"


async def sequences(engine: AsyncEngine) -> dict[str, list[int | None]]:
    """The sequence of every event as a consumer reads it, by key, in the order of their positions."""
    statement = (
        "SELECT position, topic, ordering_key, attributes::text, payload, attempts FROM outbox ORDER BY position"
    )
    found = dict[str, list[int | None]]()
    async with driver_connection(engine) as connection:
        for row in await connection.fetch(statement):
            sent = Row(*row).outgoing()
            envelope = open_envelope(sent.attributes, sent.data)
            found.setdefault(envelope.subject, []).append(envelope.sequence)
    return found


async def test_events_are_numbered_without_gaps_for_each_key_by_concurrent_transactions(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    start = asyncio.Barrier(8)

    async def write(number: int) -> None:
        await start.wait()
        # In another order in every second transaction: they lock the keys in the same order all the same.
        keys = ("a", "b", "a") if number % 2 else ("b", "a", "a")
        await emit(labour_units, *(Happened(key, number) for key in keys))

    await asyncio.gather(*(write(number) for number in range(8)))

    assert await sequences(labour_engine) == {"a": [*range(1, 17)], "b": [*range(1, 9)]}


@pytest.mark.parametrize("point", [unit_of_work.AFTER_WRITE, unit_of_work.BEFORE_COMMIT])
async def test_a_transaction_that_rolls_back_leaves_no_gap(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, point: FaultPoint
) -> None:
    await emit(labour_units, Happened("a", 1))
    with crash_at(point):
        await emit(labour_units, Happened("a", 2))

    await emit(labour_units, Happened("a", 3))

    assert await sequences(labour_engine) == {"a": [1, 2]}


# A consumer that remembers the last sequence of each labour


@pytest.fixture
async def effects(labour_engine: AsyncEngine) -> None:
    async with labour_engine.begin() as connection:
        await connection.execute(
            text("CREATE TABLE effect (id serial, subject text NOT NULL, number integer NOT NULL)")
        )


def delivery(subject: str, number: int, *, numbered: bool = True, event_id: UUID | None = None) -> Message:
    context = attributes(
        id=event_id or uuid7(),
        source="tests",
        type=Happened.type,
        version=1,
        subject=subject,
        time=datetime.now(UTC),
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
        sequence=number if numbered else None,
    )
    return Message(SUBSCRIPTION, str(uuid7()), str(number), msgspec.json.encode(Happened(subject, number)), context, 1)


def decode(envelope: Envelope) -> Happened:
    return msgspec.json.decode(envelope.data, type=Happened)


async def write(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
    rows = [(received.event.key, received.event.number) for received in events]
    await uow.connection.executemany("INSERT INTO effect (subject, number) VALUES ($1, $2)", rows)
    return ()


def a_consumer(units_of_work: UnitsOfWork, bus: PubSub) -> Consumer[Happened]:
    return Consumer(
        "tests", units_of_work=units_of_work, decode=decode, react=write, publisher=bus, claims=Watermarks()
    )


async def written(engine: AsyncEngine, subject: str) -> list[int]:
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT number FROM effect WHERE subject = :subject ORDER BY id"), {"subject": subject}
        )
        return list(rows.scalars())


@pytest.mark.usefixtures("effects")
async def test_with_watermarks_an_event_is_handled_after_the_one_before_it_and_waits_until_then(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    consumer = a_consumer(labour_units, bus)

    assert await consumer.handle([delivery("ada", 3), delivery("bea", 1), delivery("ada", 1)]) == [NACK, ACK, ACK]
    assert await consumer.handle([delivery("ada", 3), delivery("ada", 2)]) == [ACK, ACK]

    assert await written(labour_engine, "ada") == [1, 2, 3]
    assert await written(labour_engine, "bea") == [1]


@pytest.mark.usefixtures("effects")
async def test_with_watermarks_a_replay_after_retention_has_no_second_effect(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    consumer, events = a_consumer(labour_units, bus), [delivery("ada", number) for number in (1, 2, 3)]
    await consumer.handle(events)
    async with labour_engine.begin() as connection:
        await connection.execute(text("DELETE FROM processed_event"))  # as retention does in time

    assert await consumer.handle(events) == [ACK] * 3

    assert await written(labour_engine, "ada") == [1, 2, 3]
    async with labour_engine.connect() as connection:
        rows = await connection.execute(text("SELECT source, subject, sequence FROM watermark"))
        assert [tuple(row) for row in rows] == [("tests", "ada", 3)]


@pytest.mark.usefixtures("effects")
async def test_with_watermarks_a_message_of_before_there_were_sequences_is_handled_once(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    consumer, old = a_consumer(labour_units, bus), delivery("ada", 4711, numbered=False)

    assert await consumer.handle([old, delivery("ada", 1)]) == [ACK, ACK]
    assert await consumer.handle([old]) == [ACK]

    assert sorted(await written(labour_engine, "ada")) == [1, 4711]


@pytest.mark.usefixtures("effects")
async def test_with_watermarks_another_consumer_of_the_same_labour_nacks_its_events(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    holding, release = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        holding.set()
        await release.wait()

    consumer_module.AFTER_CLAIM.arm(hold)
    try:
        first = asyncio.create_task(a_consumer(labour_units, bus).handle([delivery("ada", 1)]))
        await holding.wait()
        consumer_module.AFTER_CLAIM.disarm()
        assert await a_consumer(labour_units, bus).handle([delivery("ada", 1), delivery("bea", 1)]) == [NACK, ACK]
    finally:
        consumer_module.AFTER_CLAIM.disarm()
        release.set()

    assert await first == [ACK]
    assert await written(labour_engine, "ada") == [1]


@pytest.mark.usefixtures("effects")
async def test_with_watermarks_any_deliveries_in_any_batches_apply_every_event_once_and_in_order(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    for seed in range(20):
        draw, subject = random.Random(seed), f"labour-{seed}"
        waiting = [delivery(subject, number) for number in range(1, 9)]
        waiting += draw.choices(waiting, k=6)  # duplicates

        while waiting:
            draw.shuffle(waiting)
            batch, rest = waiting[: draw.randint(1, 5)], waiting
            verdicts = await a_consumer(labour_units, bus).handle(batch)
            waiting = [one for one, verdict in zip(batch, verdicts, strict=True) if verdict is NACK] + rest[
                len(batch) :
            ]

        assert await written(labour_engine, subject) == [*range(1, 9)]
