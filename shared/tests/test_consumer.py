"""From deliveries to effects: once each, a bad one costs only itself, and every verdict is the right one."""

import asyncio
from collections.abc import Collection, Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs
from uuid_utils.compat import uuid7

from e2e.support.bus import pull_all
from e2e.support.crash import crash_at
from e2e.support.sample_events import Happened
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging import claims
from messaging import consumer as consumer_module
from messaging.bus import Message
from messaging.claims import lock_key
from messaging.consumer import Consumer, Received, Verdict
from messaging.envelope import Envelope, attributes
from messaging.errors import Undecodable
from messaging.faults import FaultPoint
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

ACK, NACK = Verdict.ACK, Verdict.NACK
SUBSCRIPTION = f"tests.{Happened.type}"


@pytest.fixture
async def effects(labour_engine: AsyncEngine) -> None:
    async with labour_engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effect (number integer NOT NULL CHECK (number >= 0))"))


def delivery(
    number: int, *, event_id: UUID | None = None, attempt: int = 1, changed: Mapping[str, str] | None = None
) -> Message:
    event_id = event_id or uuid7()
    context = attributes(
        id=event_id,
        source="tests",
        type=Happened.type,
        version=1,
        subject="a",
        time=datetime.now(UTC),
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    data = msgspec.json.encode(Happened("a", number))
    present = {key: value for key, value in {**context, **(changed or {})}.items() if value}
    return Message(SUBSCRIPTION, str(uuid7()), str(number), data, present, attempt)


def decode(envelope: Envelope) -> Happened:
    try:
        return msgspec.json.decode(envelope.data, type=Happened)
    except msgspec.DecodeError as error:
        raise Undecodable("wrong-schema", str(error)) from None


async def write(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
    """Negative numbers break the table's rule; numbers from 1,000 on are too early."""
    now = [received for received in events if received.event.number < 1000]
    if now:
        numbers = [received.event.number for received in now]
        await uow.connection.execute("INSERT INTO effect SELECT unnest($1::integer[])", numbers)
    return [received.id for received in events if received.event.number >= 1000]


def a_consumer(units_of_work: UnitsOfWork, bus: PubSub) -> Consumer[Happened]:
    return Consumer("tests", units_of_work=units_of_work, decode=decode, react=write, publisher=bus)


async def written(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT number FROM effect ORDER BY number"))).scalars())


async def claimed(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT status FROM processed_event"))).scalars())


@pytest.mark.usefixtures("effects")
async def test_the_log_has_one_line_for_a_batch_and_at_debug_one_for_each_event(
    labour_units: UnitsOfWork, bus: PubSub
) -> None:
    consumer, known = a_consumer(labour_units, bus), delivery(1)
    await consumer.handle([known])

    with capture_logs() as lines:
        await consumer.handle([known, delivery(2), delivery(1000)])

    batch, *each = lines
    counts = {"events": 3, "granted": 2, "already_completed": 1, "early": 1}
    assert batch == {"event": "batch handled", "log_level": "info", "consumer": "tests", **counts}
    assert [(line["log_level"], line["claim"], line["early"]) for line in each] == [
        ("debug", "already completed", False),
        ("debug", "granted", False),
        ("debug", "granted", True),
    ]


@pytest.mark.usefixtures("effects")
async def test_a_batch_is_one_transaction_and_a_repetition_is_acked_without_effect(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    batch = [delivery(number) for number in range(20)]
    consumer = a_consumer(labour_units, bus)

    assert await consumer.handle(batch) == [ACK] * 20
    assert await consumer.handle(batch) == [ACK] * 20

    assert await written(labour_engine) == list(range(20))
    async with labour_engine.connect() as connection:
        transactions = await connection.execute(text("SELECT count(DISTINCT xmin::text) FROM effect"))
        assert transactions.scalar_one() == 1


@pytest.mark.usefixtures("effects")
async def test_the_same_event_twice_in_one_batch_has_one_effect(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    event_id = uuid7()

    consumer = a_consumer(labour_units, bus)
    for _ in range(2):
        verdicts = await consumer.handle([delivery(1, event_id=event_id), delivery(1, event_id=event_id)])
        assert verdicts == [ACK, ACK]

    assert await written(labour_engine) == [1]
    async with labour_units() as uow:
        [row] = await claims.rows(uow.connection, [event_id])
        assert row.deliveries == 4


@pytest.mark.usefixtures("effects")
async def test_fifty_deliveries_of_an_event_to_eight_consumers_at_once_have_one_effect(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    event_id = uuid7()
    start = asyncio.Barrier(8)

    async def consume() -> list[Verdict]:
        consumer = a_consumer(labour_units, bus)
        await start.wait()
        return [verdict for _ in range(50) for verdict in await consumer.handle([delivery(1, event_id=event_id)])]

    verdicts = [verdict for verdicts in await asyncio.gather(*(consume() for _ in range(8))) for verdict in verdicts]

    assert await written(labour_engine) == [1]
    assert len(verdicts) == 400
    assert verdicts.count(ACK) > 0


@pytest.mark.usefixtures("effects")
async def test_an_event_held_elsewhere_is_nacked_and_the_rest_of_the_batch_goes_on(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    held = uuid7()
    async with labour_engine.begin() as holder:
        await holder.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": lock_key("tests", held)})

        verdicts = await a_consumer(labour_units, bus).handle([delivery(1, event_id=held), delivery(2)])

    assert verdicts == [NACK, ACK]
    assert await written(labour_engine) == [2]


@pytest.mark.usefixtures("effects")
async def test_an_early_event_is_nacked_and_leaves_no_claim(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    verdicts = await a_consumer(labour_units, bus).handle([delivery(1000), delivery(1)])

    assert verdicts == [NACK, ACK]
    assert await claimed(labour_engine) == ["COMPLETED"]


@pytest.mark.usefixtures("effects")
async def test_a_failing_event_costs_only_itself_and_leaves_neither_claim_nor_effect(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    verdicts = await a_consumer(labour_units, bus).handle([delivery(1), delivery(-1), delivery(3)])

    assert verdicts == [ACK, NACK, ACK]
    assert await written(labour_engine) == [1, 3]
    assert await claimed(labour_engine) == ["COMPLETED", "COMPLETED"]


@pytest.mark.usefixtures("effects")
async def test_an_event_that_keeps_failing_is_dead_lettered_with_its_reason(
    labour_units: UnitsOfWork, bus: PubSub
) -> None:
    consumer = a_consumer(labour_units, bus)

    assert await consumer.handle([delivery(-1, attempt=9)]) == [NACK]
    assert await consumer.handle([delivery(-1, attempt=10)]) == [ACK]

    [dead] = await pull_all(bus, f"{Happened.type}.dlq")
    assert dead.attributes["dead-letter-reason"] == "reaction-failed"
    assert "CheckViolationError" in dead.attributes["dead-letter-detail"]
    assert dead.attributes["dead-letter-consumer"] == "tests"
    assert dead.attributes["ce-type"] == Happened.type


@pytest.mark.usefixtures("effects")
@pytest.mark.parametrize(
    ("changed", "data", "reason"),
    [
        ({"ce-id": ""}, None, "no-event-id"),
        ({"ce-id": "seven"}, None, "no-event-id"),
        ({"ce-time": "soon"}, None, "bad-envelope"),
        ({}, b"not json", "wrong-schema"),
        ({}, b'{"key":1}', "wrong-schema"),
    ],
)
async def test_what_can_never_be_handled_goes_straight_to_the_dead_letters_once(
    labour_engine: AsyncEngine,
    labour_units: UnitsOfWork,
    bus: PubSub,
    changed: dict[str, str],
    data: bytes | None,
    reason: str,
) -> None:
    good, poison = delivery(1), delivery(2, changed=changed)
    poison = poison if data is None else Message(SUBSCRIPTION, "x", "2", data, poison.attributes, 1)

    verdicts = await a_consumer(labour_units, bus).handle([poison, good])

    assert verdicts == [ACK, ACK]
    assert await written(labour_engine) == [1]
    [dead] = await pull_all(bus, f"{Happened.type}.dlq")
    assert dead.attributes["dead-letter-reason"] == reason
    assert dead.data == poison.data


@pytest.mark.usefixtures("effects")
async def test_poison_with_no_room_for_our_reason_is_dead_lettered_all_the_same(
    labour_units: UnitsOfWork, bus: PubSub
) -> None:
    crowded = {f"filler-{number}": "x" for number in range(92)}

    assert await a_consumer(labour_units, bus).handle([delivery(1, changed={"ce-time": "soon", **crowded})]) == [ACK]

    [dead] = await pull_all(bus, f"{Happened.type}.dlq")
    assert dead.attributes["dead-letter-reason"] == "bad-envelope"


@pytest.mark.usefixtures("effects")
async def test_poison_stays_on_the_bus_while_it_cannot_be_dead_lettered(labour_units: UnitsOfWork, bus: PubSub) -> None:
    elsewhere = Message("tests.no-such-topic", "x", "1", b"", {}, 1)

    assert await a_consumer(labour_units, bus).handle([elsewhere]) == [NACK]


@pytest.mark.usefixtures("effects")
async def test_while_the_database_is_unavailable_messages_are_kept_and_then_handled(
    postgres: TemporaryServer, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    await asyncio.to_thread(postgres.stop)
    try:
        handling = asyncio.create_task(a_consumer(labour_units, bus).handle([delivery(1)]))
        await asyncio.wait([handling], timeout=0.5)
        assert not handling.done()
    finally:
        await asyncio.to_thread(postgres.start)

    async with asyncio.timeout(60):
        assert await handling == [ACK]
    assert await written(labour_engine) == [1]


POINTS = [
    consumer_module.AFTER_RECEIVE,
    consumer_module.AFTER_CLAIM,
    consumer_module.AFTER_EFFECT,
    consumer_module.AFTER_COMMIT,
]


@pytest.mark.usefixtures("effects")
@pytest.mark.parametrize("point", POINTS, ids=lambda point: point.name)
async def test_a_consumer_that_dies_anywhere_leaves_one_effect_after_redelivery(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, point: FaultPoint
) -> None:
    message = delivery(1)
    with crash_at(point):
        await a_consumer(labour_units, bus).handle([message])

    assert await written(labour_engine) == ([1] if point is consumer_module.AFTER_COMMIT else [])
    assert len(await claimed(labour_engine)) == len(await written(labour_engine))

    async def acked() -> bool:
        return await a_consumer(labour_units, bus).handle([message]) == [ACK]

    await eventually(acked, what="the redelivery is handled")
    assert await written(labour_engine) == [1]
