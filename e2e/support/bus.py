"""Topics and messages of the bus: declare them, read them, and publish through a connection that fails."""

import asyncio
import random
from collections import defaultdict
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import msgspec

from e2e.support.sample_events import TOPICS, Happened
from fern.topology import Declared, apply
from messaging.bus import Message, Outgoing
from messaging.errors import BusUnavailable, PublishRejected
from messaging.pubsub import PubSub
from messaging.receiver import Receiver


async def apply_topology(project: str, topics: dict[str, list[str]], **options: object) -> None:
    """Create topics, dead-letter topics and subscriptions as in production. The client is synchronous, hence the thread."""
    declared = Declared.of({"subscription": {**Declared.load().options, **options}, "topics": topics})
    await asyncio.to_thread(apply, declared, project)


async def pull_all(bus: PubSub, subscription: str) -> list[Message]:
    """Pull and acknowledge every message of a subscription; returns them in the order of publishing."""
    found: list[Message] = []
    while messages := await bus.pull(subscription, 1000, wait=2.0):
        found += messages
        await bus.acknowledge(subscription, [message.ack_id for message in messages])
    return sorted(found, key=lambda message: int(message.message_id))


async def pull_sample_events(bus: PubSub) -> list[Happened]:
    """All sample events on the bus, in the order of publishing within each topic."""
    topics = await asyncio.gather(*(pull_all(bus, f"tests.{topic}") for topic in TOPICS))
    return [msgspec.json.decode(message.data, type=Happened) for messages in topics for message in messages]


class UnreliableBus:
    """The real bus behind a connection that fails: a call fails before or after it took effect, or is rejected."""

    def __init__(self, bus: PubSub, seed: int) -> None:
        self._bus, self._random = bus, random.Random(seed)
        self.accepted = defaultdict[str, list[int]](list)

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        draw = self._random.random()
        if draw < 0.15:
            raise BusUnavailable("the request was lost")
        if draw < 0.25:
            raise PublishRejected("rejected on purpose")
        message_ids = await self._bus.publish(topic, messages)
        for message in messages:
            event = msgspec.json.decode(message.data, type=Happened)
            self.accepted[event.key].append(event.number)
        if draw < 0.4:
            raise BusUnavailable("the answer was lost")
        return message_ids


@asynccontextmanager
async def running_receiver(receiver: Receiver) -> AsyncIterator[None]:
    """Run the receiver in the block, and stop it gracefully at the end."""
    stop = asyncio.Event()
    task = asyncio.create_task(receiver.run(stop))
    try:
        yield
    finally:
        stop.set()
        async with asyncio.timeout(60):
            await task
