"""Small helpers for every test in the house."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from fern.topology import Declared, apply
from messaging.pubsub import Message, PubSub


async def apply_topology(project: str, topics: dict[str, list[str]], **options: object) -> None:
    """Topics, dead-letter topics and subscriptions as in production; the client is synchronous, hence the thread."""
    declared = Declared.of({"subscription": {**Declared.load().options, **options}, "topics": topics})
    await asyncio.to_thread(apply, declared, project)


async def eventually(check: Callable[[], Awaitable[bool]], what: str, seconds: float = 20.0) -> None:
    """Polls until true; the deadline only ends a test that has failed anyway."""
    deadline = time.monotonic() + seconds
    while not await check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


async def pull_all(bus: PubSub, subscription: str) -> list[Message]:
    """Everything a subscription has, acked; in the order of publishing."""
    found: list[Message] = []
    while messages := await bus.pull(subscription, 1000, wait=1.0):
        found += messages
        await bus.acknowledge(subscription, [message.ack_id for message in messages])
    return sorted(found, key=lambda message: int(message.message_id))
