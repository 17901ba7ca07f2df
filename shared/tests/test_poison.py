"""A burst of events that cannot be handled delays the others by little, and each of them ends among the dead letters."""

import asyncio
from collections import Counter
from collections.abc import Collection, Sequence
from uuid import UUID

import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs
from uuid_utils.compat import uuid7

from e2e.support.bus import pull_all, running_receiver
from e2e.support.sample_events import TOPICS, AlsoHappened, Happened
from e2e.support.waiting import eventually
from messaging import clock
from messaging.bus import Message, Outgoing, Publisher
from messaging.consumer import Consumer, Received, Verdict
from messaging.envelope import Envelope, attributes
from messaging.errors import PublishRejected, ReactionsFailed, Undecodable
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

ACK, NACK = Verdict.ACK, Verdict.NACK
SUBSCRIPTIONS = [f"tests.{topic}" for topic in TOPICS]
BURST = 5000
GOOD = 20


@pytest.fixture(autouse=True)
async def _effects(labour_engine: AsyncEngine) -> None:
    async with labour_engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effect (number integer NOT NULL CHECK (number >= 0))"))


class ObservedBus:
    """The real bus. Counts the publish calls by topic, and holds them while `open` is not set."""

    def __init__(self, bus: Publisher) -> None:
        self._bus, self.calls, self.open = bus, Counter[str](), asyncio.Event()
        self.open.set()

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        self.calls[topic] += 1
        await self.open.wait()
        return await self._bus.publish(topic, messages)


def outgoing(number: int, type: str = Happened.type, *, data: bytes | None = None) -> Outgoing:
    context = attributes(
        id=uuid7(),
        source="tests",
        type=type,
        version=1,
        subject="a",
        time=clock.now(),
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    return Outgoing(msgspec.json.encode(Happened("a", number)) if data is None else data, context)


def delivered(sent: Outgoing, *, attempt: int = 1, type: str = Happened.type) -> Message:
    return Message(f"tests.{type}", str(uuid7()), str(uuid7()), sent.data, dict(sent.attributes), attempt)


def decode(envelope: Envelope) -> Happened:
    try:
        return msgspec.json.decode(envelope.data, type=Happened)
    except msgspec.DecodeError as error:
        raise Undecodable("wrong-schema", str(error)) from None


class Writer:
    """Writes the events of a batch in one statement. Negative numbers break the table's rule."""

    def __init__(self) -> None:
        self.batches = list[list[int]]()

    async def __call__(self, uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        numbers = [received.event.number for received in events]
        self.batches.append(numbers)
        await uow.connection.execute("INSERT INTO effect SELECT unnest($1::integer[])", numbers)
        return ()


def a_consumer(units_of_work: UnitsOfWork, bus: Publisher, react: Writer) -> Consumer[Happened]:
    return Consumer("tests", units_of_work=units_of_work, decode=decode, react=react, publisher=bus)


async def written(engine: AsyncEngine) -> list[int]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT number FROM effect ORDER BY number"))).scalars())


async def test_a_burst_of_poison_is_dead_lettered_with_one_call_for_each_batch_and_one_log_line(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    poison = [outgoing(number, data=b"not json") for number in range(BURST)]
    good = [outgoing(number) for number in range(GOOD)]
    await bus.publish(Happened.type, [*poison, *good])
    observed, batches = ObservedBus(bus), list[int]()
    consumer = a_consumer(labour_units, observed, Writer())

    async def handle(messages: Sequence[Message]) -> list[Verdict]:
        batches.append(len(messages))
        return await consumer.handle(messages)

    with capture_logs() as lines:
        async with running_receiver(Receiver(bus, SUBSCRIPTIONS, handle)):
            await eventually(lambda: written(labour_engine), lambda numbers: len(numbers) == GOOD)

    assert sum(batches) == BURST + GOOD
    assert observed.calls[f"{Happened.type}.dlq"] <= len(batches)
    dead = [line for line in lines if line["event"] == "messages dead-lettered"]
    assert sum(line["count"] for line in dead) == BURST
    assert len(dead) == observed.calls[f"{Happened.type}.dlq"]
    assert all(0 < len(line["message_ids"]) <= 3 for line in dead)
    assert len(await pull_all(bus, f"{Happened.type}.dlq")) == BURST


async def test_poison_is_dead_lettered_beside_the_good_events_and_not_before_them(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    observed = ObservedBus(bus)
    observed.open.clear()
    poison, good = delivered(outgoing(1, data=b"not json")), delivered(outgoing(2))

    handling = asyncio.create_task(a_consumer(labour_units, observed, Writer()).handle([poison, good]))
    await eventually(lambda: written(labour_engine), lambda numbers: numbers == [2])

    assert observed.calls == {f"{Happened.type}.dlq": 1}  # it is under way
    assert not handling.done()  # nothing is acknowledged before the dead letter is stored
    observed.open.set()
    assert await handling == [ACK, ACK]


async def test_dead_letters_that_the_bus_rejects_together_are_published_one_by_one(
    labour_units: UnitsOfWork, bus: PubSub
) -> None:
    crowded = outgoing(1, data=b"not json")
    crowded = Outgoing(crowded.data, {**crowded.attributes, **{f"filler-{number}": "x" for number in range(92)}})
    batch = [delivered(crowded), *(delivered(outgoing(number, data=b"not json")) for number in range(3))]

    assert await a_consumer(labour_units, bus, Writer()).handle(batch) == [ACK] * 4

    dead = await pull_all(bus, f"{Happened.type}.dlq")
    assert sorted("ce-id" in message.attributes for message in dead) == [False, True, True, True]


async def test_only_the_messages_that_cannot_be_dead_lettered_stay_on_the_bus(
    labour_units: UnitsOfWork, bus: PubSub
) -> None:
    class Choosy:
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
            if any(message.data == b"never" for message in messages):
                raise PublishRejected("on purpose")
            return await bus.publish(topic, messages)

    batch = [delivered(outgoing(1, data=data)) for data in (b"now", b"never", b"now")]

    assert await a_consumer(labour_units, Choosy(), Writer()).handle(batch) == [ACK, NACK, ACK]


async def test_a_failing_event_in_a_batch_costs_few_transactions(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    writer = Writer()
    batch = [delivered(outgoing(-1 if number == 137 else number)) for number in range(250)]

    with capture_logs() as lines:
        verdicts = await a_consumer(labour_units, bus, writer).handle(batch)

    assert (verdicts.count(ACK), verdicts[137]) == (249, NACK)
    assert len(await written(labour_engine)) == 249
    assert len(writer.batches) <= 20
    assert len([line for line in lines if line["event"] == "reaction failed"]) == 1


async def test_a_reaction_that_knows_which_events_have_failed_costs_one_more_transaction(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    class Knowing(Writer):
        async def __call__(self, uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
            if failed := [received.id for received in events if received.event.number < 0]:
                raise ReactionsFailed(dict.fromkeys(failed, ValueError("negative")))
            return await super().__call__(uow, events)

    writer = Knowing()
    batch = [delivered(outgoing(number if number % 2 else -1)) for number in range(100)]

    assert await a_consumer(labour_units, bus, writer).handle(batch) == [NACK, ACK] * 50

    assert [len(numbers) for numbers in writer.batches] == [50]
    assert len(await written(labour_engine)) == 50


async def test_an_event_that_has_failed_is_not_tried_together_with_others_again(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    writer = Writer()
    consumer = a_consumer(labour_units, bus, writer)
    bad = [outgoing(-1 - number) for number in range(10)]
    await consumer.handle([delivered(one) for one in bad])
    writer.batches.clear()

    verdicts = await consumer.handle(
        [*(delivered(one, attempt=2) for one in bad), *(delivered(outgoing(number)) for number in range(100))]
    )

    assert verdicts == [NACK] * 10 + [ACK] * 100
    assert sorted(writer.batches, key=len)[-1] == list(range(100))
    assert len(writer.batches) == 11
    assert writer.batches[0] == list(range(100))  # the others first


async def test_events_that_keep_failing_are_dead_lettered_together(labour_units: UnitsOfWork, bus: PubSub) -> None:
    observed = ObservedBus(bus)
    bad = [delivered(outgoing(-1), attempt=10) for _ in range(30)]

    with capture_logs() as lines:
        assert await a_consumer(labour_units, observed, Writer()).handle(bad) == [ACK] * 30

    assert observed.calls == {f"{Happened.type}.dlq": 1}
    assert [line["count"] for line in lines if line["event"] == "reaction failed"] == [30]
    assert len(await pull_all(bus, f"{Happened.type}.dlq")) == 30


async def test_a_burst_on_one_topic_does_not_hold_up_another(bus: PubSub) -> None:
    """The first batch is held until a thousand messages of one topic wait, and after them one of another."""
    batches, held, go_on = list[Counter[str]](), asyncio.Event(), asyncio.Event()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        batches.append(Counter(message.subscription for message in batch))
        held.set()
        await go_on.wait()
        return [ACK] * len(batch)

    async def waiting() -> int:
        return receiver.waiting

    receiver = Receiver(bus, SUBSCRIPTIONS, handle, workers=1, outstanding=2000)
    async with running_receiver(receiver):
        await bus.publish(Happened.type, [outgoing(number) for number in range(1000)])
        await held.wait()
        all_but_the_first_batch = 1000 - batches[0].total()
        await eventually(waiting, lambda count: count == all_but_the_first_batch)
        await bus.publish(AlsoHappened.type, [outgoing(1, AlsoHappened.type)])
        await eventually(waiting, lambda count: count > all_but_the_first_batch)
        go_on.set()
        await eventually(waiting, lambda count: count == 0)

    assert batches[1][f"tests.{AlsoHappened.type}"] == 1
