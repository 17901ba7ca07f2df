"""Small helpers for every test in the house."""

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

from litestar import Litestar

from fern.topology import Declared, apply
from messaging.bus import Message
from messaging.pubsub import PubSub
from servicekit.web import serve


async def apply_topology(project: str, topics: dict[str, list[str]], **options: object) -> None:
    """Topics, dead-letter topics and subscriptions as in production; the client is synchronous, hence the thread."""
    declared = Declared.of({"subscription": {**Declared.load().options, **options}, "topics": topics})
    await asyncio.to_thread(apply, declared, project)


async def eventually(check: Callable[[], Awaitable[bool]], what: str, seconds: float = 60.0) -> None:
    """Polls until true; the deadline only ends a test that has failed anyway."""
    deadline = time.monotonic() + seconds
    while not await check():
        assert time.monotonic() < deadline, f"not within {seconds} s: {what}"
        await asyncio.sleep(0.02)


async def pull_all(bus: PubSub, subscription: str) -> list[Message]:
    """Everything a subscription has, acked; in the order of publishing."""
    found: list[Message] = []
    while messages := await bus.pull(subscription, 1000, wait=2.0):
        found += messages
        await bus.acknowledge(subscription, [message.ack_id for message in messages])
    return sorted(found, key=lambda message: int(message.message_id))


@asynccontextmanager
async def served(app: Litestar | Callable[[str], Litestar]) -> AsyncIterator[str]:
    """The application behind its real server, on a port that it has from the start. It may be made from its own address."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # named as TCP, or asyncio leaves Nagle's algorithm on
    listener.bind(("127.0.0.1", 0))
    address, stop = listener.getsockname(), asyncio.Event()
    url = f"http://127.0.0.1:{address[1]}"
    app = app if isinstance(app, Litestar) else app(url)
    serving = asyncio.create_task(serve(app, listener=listener, stop=stop))

    async def listening() -> bool:
        assert not serving.done(), "the server ended"
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    await eventually(listening, "the server listens")
    try:
        yield url
    finally:
        stop.set()
        await serving
