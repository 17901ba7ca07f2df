"""Every committed event reaches the bus, those of one key in order, whatever relays, bus and database do."""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.bus import UnreliableBus, pull_all, pull_sample_events
from e2e.support.crash import crash_at
from e2e.support.sample_events import TOPICS, AlsoHappened, Happened, all_published, emit, outbox_rows, outbox_state
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging import relay
from messaging.bus import Outgoing
from messaging.errors import BusUnavailable, PublishRejected
from messaging.faults import FaultPoint
from messaging.outbox import lane_of
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitsOfWork


async def test_four_relays_with_failing_publishes_keep_each_keys_order_and_lose_nothing(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    keys = [f"labour-{number}" for number in range(30)]
    kinds = random.Random(7)
    for number in range(12):
        await emit(labour_units, *(kinds.choice((Happened, AlsoHappened))(key, number) for key in keys))
    line = UnreliableBus(bus, seed=11)
    stop = asyncio.Event()
    relays = [
        Relay(
            labour_engine,
            line,
            batch_size=25,
            lanes=8,
            poll_interval=0.01,
            max_attempts=1000,
            retry_base=0.001,
            retry_cap=0.01,
        )
        for _ in range(4)
    ]

    running = [asyncio.create_task(one.run(stop)) for one in relays]
    await eventually(lambda: all_published(labour_engine), what="everything is published")
    stop.set()
    await asyncio.gather(*running)

    for key in keys:
        first_times = list(dict.fromkeys(line.accepted[key]))
        assert first_times == list(range(12)), f"{key} was published in the order {first_times}"
    assert {(event.key, event.number) for event in await pull_sample_events(bus)} == {
        (key, number) for key in keys for number in range(12)
    }


async def test_four_relays_on_a_healthy_bus_publish_nothing_twice(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    for number in range(8):
        await emit(labour_units, *(Happened(f"labour-{key}", number) for key in range(30)))
    relays = [Relay(labour_engine, bus, batch_size=20, lanes=8) for _ in range(4)]

    async def drain(one: Relay) -> None:
        while not await all_published(labour_engine):
            await one.run_once()

    await asyncio.gather(*(drain(one) for one in relays))

    found = [(event.key, event.number) for event in await pull_sample_events(bus)]
    assert sorted(found) == sorted((f"labour-{key}", number) for key in range(30) for number in range(8))


async def test_a_published_row_knows_the_message_that_it_became(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    await emit(labour_units, *(Happened(f"a{number}", number) for number in range(5)))

    await Relay(labour_engine, bus, lanes=64).run_once()

    rows = {str(row.event_id): row.message_id for row in await outbox_rows(labour_engine, parked=False)}
    messages = [message for topic in TOPICS for message in await pull_all(bus, f"tests.{topic}")]
    assert rows == {message.attributes["ce-id"]: message.message_id for message in messages}


async def test_a_pass_is_one_call_per_topic(labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub) -> None:
    calls = []

    class Counting:
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            calls.append((topic, len(messages)))
            return await bus.publish(topic, messages)

    await emit(labour_units, *(Happened(f"a{number}", 0) for number in range(40)))
    await emit(labour_units, *(AlsoHappened(f"b{number}", 0) for number in range(40)))

    done = await Relay(labour_engine, Counting(), lanes=64).run_once()

    assert done.published == 80
    assert sorted(calls) == [("test.also-happened", 40), ("test.happened", 40)]


async def test_a_poison_row_is_parked_and_holds_up_its_own_key_only(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    await emit(labour_units, Happened("sick", 1), AlsoHappened("sick", 2), Happened("sick", 3), Happened("well", 1))
    async with labour_engine.begin() as connection:
        await connection.execute(
            text("UPDATE outbox SET attributes = attributes || jsonb_build_object('long', repeat('x', 1025)) "
                 "WHERE topic = 'test.also-happened'")
        )  # fmt: skip
    poisoned = Relay(labour_engine, bus, max_attempts=3, retry_base=0.0, retry_cap=0.0, lanes=64)

    for _ in range(5):
        await poisoned.run_once()

    states = [
        (key, published, attempts, parked) for _, key, published, attempts, parked in await outbox_state(labour_engine)
    ]
    assert states == [
        ("sick", True, 0, False),
        ("sick", False, 3, True),
        ("sick", False, 0, False),
        ("well", True, 0, False),
    ]
    [parked] = await outbox_rows(labour_engine, parked=True)
    assert parked.last_error is not None
    assert "INVALID_ARGUMENT" in parked.last_error


async def test_one_bad_message_in_a_call_does_not_keep_the_others_back(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    class Picky:
        """Rejects a call that has a bad message in it, as the real service does."""

        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            if any(b'"bad"' in message.data for message in messages):
                raise PublishRejected("INVALID_ARGUMENT: attribute too long")
            return await bus.publish(topic, messages)

    await emit(labour_units, Happened("good", 1), Happened("bad", 1), Happened("bad", 2), Happened("fine", 1))

    done = await Relay(labour_engine, Picky(), lanes=64).run_once()

    assert (done.published, done.rejected, done.waiting) == (2, 1, 0)
    assert {event.key for event in await pull_sample_events(bus)} == {"good", "fine"}


async def test_while_the_bus_is_unavailable_no_attempt_is_counted_and_retries_pause(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    calls = 0
    asked, back = asyncio.Event(), asyncio.Event()

    class Away:
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            nonlocal calls
            calls += 1
            asked.set()
            if not back.is_set():
                raise BusUnavailable("no answer")
            return await bus.publish(topic, messages)

    await emit(labour_units, Happened("a", 1))
    stop = asyncio.Event()
    running = asyncio.create_task(Relay(labour_engine, Away(), poll_interval=0.01).run(stop))
    await asked.wait()
    await asyncio.sleep(1.0)  # the outage itself: long enough for a hot loop to show in the count
    calls_while_away = calls
    back.set()
    await eventually(lambda: all_published(labour_engine), what="published after the outage")
    stop.set()
    await running

    assert 1 <= calls_while_away <= 10
    [(_, _, _, attempts, parked)] = await outbox_state(labour_engine)
    assert (attempts, parked) == (0, False)


async def test_a_relay_survives_a_restart_of_the_database(
    postgres: TemporaryServer, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    stop = asyncio.Event()
    running = asyncio.create_task(Relay(labour_engine, bus, poll_interval=0.05).run(stop))

    await asyncio.to_thread(postgres.kill)
    await asyncio.to_thread(postgres.start)
    await _until_it_works(lambda: emit(labour_units, Happened("a", 1)))
    await eventually(lambda: all_published(labour_engine), what="published after the restart")
    stop.set()
    await running


async def _until_it_works(action: Callable[[], Awaitable[None]]) -> None:
    async def works() -> bool:
        try:
            await action()
        except Exception:
            return False
        return True

    await eventually(works, what="the database is back")


@pytest.mark.parametrize(
    "point", [relay.AFTER_READ, relay.AFTER_PUBLISH, relay.AFTER_MARK], ids=lambda point: point.name
)
async def test_a_relay_that_dies_anywhere_leaves_its_work_to_the_next(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, point: FaultPoint
) -> None:
    await emit(labour_units, Happened("a", 1), Happened("a", 2))
    with crash_at(point):
        await Relay(labour_engine, bus).run_once()
    assert not await all_published(labour_engine)

    assert (await Relay(labour_engine, bus).run_once()).published == 2

    numbers = [event.number for event in await pull_sample_events(bus)]
    assert list(dict.fromkeys(numbers)) == [1, 2]
    assert len(numbers) == (2 if point is relay.AFTER_READ else 4)  # at least once, and here is why not exactly once


async def test_a_slow_call_to_the_bus_holds_up_its_own_keys_only(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    slow, arrived, answer = asyncio.Event(), asyncio.Event(), asyncio.Event()

    class SlowForOne:
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            if any(b'"slow"' in message.data for message in messages) and not slow.is_set():
                slow.set()
                await answer.wait()
            elif any(b'"other"' in message.data for message in messages):
                arrived.set()
            return await bus.publish(topic, messages)

    assert lane_of("slow") != lane_of("other")
    await emit(labour_units, Happened("slow", 1))
    stop, one = asyncio.Event(), Relay(labour_engine, SlowForOne(), poll_interval=3600)
    running = asyncio.create_task(one.run(stop))
    await slow.wait()

    await emit(labour_units, Happened("slow", 2), Happened("other", 1))
    one.wake()
    await arrived.wait()
    answer.set()
    await eventually(lambda: all_published(labour_engine), what="the rest of the slow key is published")
    stop.set()
    await running

    events = [(event.key, event.number) for event in await pull_sample_events(bus)]
    assert [number for key, number in events if key == "slow"] == [1, 2]
    assert sorted(events) == [("other", 1), ("slow", 1), ("slow", 2)]


async def test_a_relay_that_is_asked_to_stop_finishes_the_passes_under_way(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    asked, answer = asyncio.Event(), asyncio.Event()

    class Slow:
        async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
            asked.set()
            await answer.wait()
            return await bus.publish(topic, messages)

    await emit(labour_units, Happened("a", 1))
    stop = asyncio.Event()
    running = asyncio.create_task(Relay(labour_engine, Slow()).run(stop))
    await asked.wait()

    stop.set()
    answer.set()
    await running

    assert await all_published(labour_engine)
