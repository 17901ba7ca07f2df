"""Streaming pull and drain, against our emulator and, where it is installed, Google's."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path

import pytest
from google.pubsub_v1 import SubscriberAsyncClient
from google.pubsub_v1.types import PushConfig
from structlog.testing import capture_logs

from e2e.support.bus import apply_topology, pull_all, running_receiver
from e2e.support.ports import free_port_base
from e2e.support.sample_events import TOPICS, Happened
from e2e.support.waiting import eventually
from messaging.bus import Message, Outgoing
from messaging.consumer import Verdict
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from pubsub_emulator import server as embedded

SUBSCRIPTIONS = [f"tests.{topic}" for topic in TOPICS]


@pytest.fixture
async def bus(any_bus_host: str, project: str) -> AsyncIterator[PubSub]:
    await apply_topology(project, TOPICS, minimum_backoff_seconds=0, maximum_backoff_seconds=0)
    bus = PubSub(project)
    yield bus
    await bus.close()


async def publish(bus: PubSub, *texts: str) -> None:
    await bus.publish(Happened.type, [Outgoing(text.encode(), {"n": text}) for text in texts])


async def test_messages_stream_in_and_what_is_acked_never_returns(bus: PubSub) -> None:
    seen = list[str]()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        seen.extend(message.data.decode() for message in batch)
        return [Verdict.ACK] * len(batch)

    async def all_seen() -> bool:
        return len(seen) >= 300

    async with running_receiver(Receiver(bus, SUBSCRIPTIONS, handle)):
        await publish(bus, *(str(number) for number in range(300)))
        await eventually(all_seen, what="all are delivered")

    assert sorted(seen, key=int) == [str(number) for number in range(300)]
    assert await pull_all(bus, SUBSCRIPTIONS[0]) == []


async def test_a_nacked_message_comes_again(bus: PubSub) -> None:
    attempts = list[int]()
    done = asyncio.Event()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        attempts.extend(message.delivery_attempt for message in batch)
        if len(attempts) < 3:
            return [Verdict.NACK] * len(batch)
        done.set()
        return [Verdict.ACK] * len(batch)

    async with running_receiver(Receiver(bus, SUBSCRIPTIONS, handle)):
        await publish(bus, "again")
        async with asyncio.timeout(30):
            await done.wait()

    assert attempts == [1, 2, 3]


async def test_a_handler_slower_than_the_lease_keeps_its_message(bus: PubSub) -> None:
    """The lease is ten seconds, the least the service allows; the handler takes twelve."""
    deliveries = 0

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        nonlocal deliveries
        deliveries += len(batch)
        await asyncio.sleep(12)
        return [Verdict.ACK] * len(batch)

    async def handled() -> bool:
        return deliveries >= 1

    async with running_receiver(Receiver(bus, SUBSCRIPTIONS, handle, stop_limit=20)):
        await publish(bus, "slow")
        await eventually(handled, what="it is delivered")

    assert deliveries == 1
    assert await pull_all(bus, SUBSCRIPTIONS[0]) == []


async def test_stopping_finishes_what_is_held_and_hands_back_what_is_not(bus: PubSub) -> None:
    begun, finish = asyncio.Event(), asyncio.Event()
    handled = list[str]()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        begun.set()
        await finish.wait()
        handled.extend(message.data.decode() for message in batch)
        return [Verdict.ACK] * len(batch)

    stop = asyncio.Event()
    receiver = Receiver(bus, SUBSCRIPTIONS, handle, batch_size=1, workers=1, stop_limit=10)
    task = asyncio.create_task(receiver.run(stop))
    await publish(bus, "one", "two", "three")
    await begun.wait()

    stop.set()
    await asyncio.wait([task], timeout=0.2)
    assert not task.done()
    finish.set()
    async with asyncio.timeout(60):
        await task

    left = [message.data.decode() for message in await pull_all(bus, SUBSCRIPTIONS[0])]
    assert sorted(handled + left) == ["one", "three", "two"]


async def test_a_drain_handles_what_is_there_and_ends(bus: PubSub) -> None:
    handled = list[str]()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        handled.extend(message.data.decode() for message in batch)
        return [Verdict.ACK] * len(batch)

    await publish(bus, *(str(number) for number in range(150)))

    assert await Receiver(bus, SUBSCRIPTIONS, handle, drain_wait=3.0).drain() >= 150

    assert set(handled) == {str(number) for number in range(150)}


async def test_an_exactly_once_subscription_is_consumed_the_same_way(bus_host: str, project: str) -> None:
    await apply_topology(project, TOPICS, exactly_once=True)
    bus = PubSub(project)
    handled = list[str]()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        handled.extend(message.data.decode() for message in batch)
        return [Verdict.ACK] * len(batch)

    await publish(bus, "one", "two")

    assert await Receiver(bus, SUBSCRIPTIONS, handle, drain_wait=3.0).drain() == 2
    assert sorted(handled) == ["one", "two"]
    assert await pull_all(bus, SUBSCRIPTIONS[0]) == []
    await bus.close()


async def test_a_pushed_subscription_is_left_alone_until_it_is_pulled_again(bus_host: str, project: str) -> None:
    await apply_topology(project, TOPICS)
    bus, subscriber = PubSub(project), SubscriberAsyncClient()
    name = bus.subscription_path(SUBSCRIPTIONS[0])
    seen = asyncio.Event()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        seen.set()
        return [Verdict.ACK] * len(batch)

    with capture_logs() as logs:
        async with running_receiver(Receiver(bus, SUBSCRIPTIONS, handle)):
            nowhere = PushConfig(push_endpoint="http://127.0.0.1:9/closed")
            await subscriber.modify_push_config(subscription=name, push_config=nowhere)
            await publish(bus, "one")
            assert await Receiver(bus, SUBSCRIPTIONS[:1], handle).drain() == 0
            assert not seen.is_set()

            await subscriber.modify_push_config(subscription=name, push_config=PushConfig())
            async with asyncio.timeout(60):
                await seen.wait()

    assert {line["event"] for line in logs if line["log_level"] == "warning"} == set()
    assert await pull_all(bus, SUBSCRIPTIONS[0]) == []
    await bus.close()


@pytest.mark.system
async def test_a_stream_that_breaks_is_opened_again(
    tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = asyncio.Queue[str]()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        for message in batch:
            seen.put_nowait(message.data.decode())
        return [Verdict.ACK] * len(batch)

    port = free_port_base()
    async with embedded.running(tmp_path / "bus", port=port) as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
        await apply_topology(project, TOPICS)
        bus = PubSub(project)
        stop = asyncio.Event()
        task = asyncio.create_task(Receiver(bus, SUBSCRIPTIONS, handle).run(stop))
        await publish(bus, "before")
        assert await asyncio.wait_for(seen.get(), 60) == "before"

    async def published() -> bool:
        with suppress(BusUnavailable):  # the client may still be waiting before it connects again
            await publish(bus, "after")
            return True
        return False

    async with embedded.running(tmp_path / "bus", port=port):
        await eventually(published, what="the bus takes messages again")
        assert await asyncio.wait_for(seen.get(), 60) == "after"
        stop.set()
        await asyncio.wait_for(task, 60)
        await bus.close()
