"""The statistics of a labour are those of its contractions, whatever the order and number of deliveries of its events."""

import asyncio
import random
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import ContractionCorrected, ContractionEnded, Event
from e2e.support.databases import fresh_database
from fern.runtime.postgres import TemporaryServer
from labour.application.statistics import react_to_batch
from labour.consumer import create_consumer, create_statistics_consumer
from labour.domain.labour import Labour
from messaging.aggregate import Recorded
from messaging.bus import Message
from messaging.consumer import Consumer, Verdict
from messaging.database import create_engine
from messaging.envelope import attributes
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from tests.labour_parts import NOW, execute, fetch
from tests.statistics_parts import History, Step, labour_with, received, statistics_of

VERBS = ("start", "start", "end", "end", "correct", "delete", "begin", "push", "complete")
steps = st.lists(st.tuples(st.sampled_from(VERBS), st.integers(0, 20), st.integers(1, 400)), max_size=30)


class Projection:
    """The reaction on a database of its own, without claims."""

    def __init__(self, url: str) -> None:
        self.runner = asyncio.Runner()
        self.engine = create_engine(url, process="test", connect_timeout=60)

    def deliver(self, batch: Sequence[Recorded]) -> None:
        async def react() -> None:
            async with UnitOfWork(self.engine, source="labour", committed=lambda: None) as uow:
                assert not await react_to_batch(uow, [received(one) for one in batch]), "no event is early"

        self.runner.run(react())

    def statistics(self, labour: Labour) -> dict[str, Any]:
        return self.runner.run(statistics_of(self.engine, labour))


@pytest.fixture(scope="module")
def projection(postgres: TemporaryServer) -> Iterator[Projection]:
    projection = Projection(asyncio.run(fresh_database(postgres, "labour")))
    yield projection
    projection.runner.run(projection.engine.dispose())
    projection.runner.close()


@settings(max_examples=60)
@given(steps=steps, data=st.data())
def test_any_order_duplicates_and_batching_give_what_the_labour_itself_knows(
    projection: Projection, steps: list[Step], data: st.DataObject
) -> None:
    """There are no claims here, so every duplicate reaches the reaction."""
    history = History(steps)
    copies = data.draw(st.lists(st.sampled_from(history.recorded), max_size=10)) if history.recorded else []
    deliveries = data.draw(st.permutations([*history.recorded, *copies]))

    while deliveries:
        size = data.draw(st.integers(1, len(deliveries)))
        projection.deliver(deliveries[:size])
        deliveries = deliveries[size:]

    assert projection.statistics(history.labour) == history.statistics()


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 2, 0), (1, 0, 2)])
def test_of_two_corrections_the_later_one_counts_also_if_the_clock_went_back_between_them(
    projection: Projection, order: Sequence[int]
) -> None:
    history = labour_with("start", "end", "correct", "correct")
    [ended] = [one for one in history.recorded if isinstance(one.event, ContractionEnded)]
    first, second = (one for one in history.recorded if isinstance(one.event, ContractionCorrected))
    swapped = [ended, replace(first, id=second.id), replace(second, id=first.id)]

    for place in order:
        projection.deliver([swapped[place]])

    seen = projection.statistics(history.labour)
    assert seen["average_length_seconds"] == history.statistics()["average_length_seconds"] == 62


def test_events_from_before_there_were_sequences_are_counted(projection: Projection) -> None:
    history = labour_with("start", "end", "correct")

    projection.deliver([replace(one, sequence=None) for one in reversed(history.recorded)])

    assert projection.statistics(history.labour) == history.statistics()


def test_a_deleted_contraction_leaves_nothing_even_if_it_is_deleted_first(projection: Projection) -> None:
    history = labour_with("start", "end", "correct", "delete")

    for one in reversed(history.recorded):
        projection.deliver([one])

    assert projection.statistics(history.labour)["contractions"] == 0
    assert projection.statistics(history.labour) == history.statistics()


def test_the_number_of_statements_does_not_depend_on_the_size_of_the_batch(projection: Projection) -> None:
    async def statements(batch: Sequence[Recorded]) -> int:
        counted = list[object]()
        async with UnitOfWork(projection.engine, source="labour", committed=lambda: None) as uow:
            with uow.connection.query_logger(counted.append):
                await react_to_batch(uow, [received(one) for one in batch])
        return len(counted)

    one = labour_with("start").recorded[:1]
    many = [recorded for _ in range(40) for recorded in labour_with("start", "end", "correct").recorded]

    assert projection.runner.run(statements(many)) <= 5
    assert projection.runner.run(statements(one)) <= 5


def message(recorded: Recorded, consumer: str = "statistics") -> Message:
    event = recorded.event
    assert isinstance(event, Event)
    subject, trace = str(event.labour_id), "00-" + "a" * 32 + "-" + "b" * 16 + "-01"
    context = attributes(
        id=recorded.id,
        source="labour",
        type=event.type,
        version=1,
        subject=subject,
        time=NOW,
        traceparent=trace,
        sequence=recorded.sequence,
    )
    return Message(f"{consumer}.{event.type}", str(uuid7()), "1", msgspec.json.encode(event), context, 1)


async def deliver_until_acked(consumer: Consumer[Event], waiting: list[Message], shuffled: random.Random) -> None:
    """Deliver as the bus does: in any order, in batches of any size, and again if a message was not acknowledged."""
    for _ in range(10_000):
        if not waiting:
            return
        shuffled.shuffle(waiting)
        size = shuffled.randint(1, 8)
        batch, waiting = waiting[:size], waiting[size:]
        verdicts = await consumer.handle(batch)
        waiting += [one for one, verdict in zip(batch, verdicts, strict=True) if verdict is Verdict.NACK]
    raise AssertionError(f"{len(waiting)} messages were never acknowledged")


async def test_three_consumers_at_once_count_every_event_once_also_when_its_claim_is_deleted(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    verbs = ("start", "end") * 12 + ("correct", "delete", "push", "complete")
    histories = [labour_with(*verbs[first:]) for first in (0, 8, 16)]
    consumers = [create_statistics_consumer(labour_units, bus, lambda: None) for _ in range(3)]

    async def deliver_all() -> list[dict[str, Any]]:
        messages = [message(one) for history in histories for one in history.recorded]
        waiting = [deliver_until_acked(one, [*messages], random.Random(n)) for n, one in enumerate(consumers)]
        await asyncio.gather(*waiting)
        return [await statistics_of(labour_engine, history.labour) for history in histories]

    once = await deliver_all()
    [handled] = await fetch(labour_engine, "SELECT count(*) FROM processed_event WHERE consumer = 'statistics'")
    await execute(labour_engine, "DELETE FROM processed_event")  # as retention does
    again = await deliver_all()

    assert handled == sum(len(history.recorded) for history in histories)
    assert once == again == [history.statistics() for history in histories]


async def test_two_consumers_of_one_database_each_claim_an_event_for_themselves(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    """The claims of `labour` do not keep `statistics` from counting, nor the other way round."""
    [begun, started] = labour_with("start").recorded
    other = create_consumer(labour_units, bus, lambda: None)
    ours = create_statistics_consumer(labour_units, bus, lambda: None)
    insert = "INSERT INTO processed_event (consumer, event_id, status) VALUES ('{}', '{}', 'COMPLETED')"
    await execute(labour_engine, insert.format(other.name, begun.id))
    await execute(labour_engine, insert.format("notification", started.id))

    verdicts = await ours.handle([message(begun), message(started)])

    assert verdicts == [Verdict.ACK, Verdict.ACK]
    assert len(await fetch(labour_engine, "SELECT DISTINCT event_id FROM statistics_posting")) == 2
    claimed = "SELECT consumer, count(*) FROM processed_event GROUP BY consumer ORDER BY consumer"
    assert await fetch(labour_engine, claimed) == [("labour", 1), ("notification", 1), ("statistics", 2)]
