"""The live feed: what happens in the sandbox, to everyone who listens (the page, a test)."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import dataclass

import msgspec

PING_SECONDS = 15.0
BACKLOG = 1000  # a listener this far behind is dropped; it connects again and reads the state afresh


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    data: object = None

    def encode(self) -> bytes:
        return b"event: %b\ndata: %b\n\n" % (self.name.encode(), msgspec.json.encode(self.data))


class Feed:
    def __init__(self) -> None:
        self.listeners: set[asyncio.Queue[Event | None]] = set()

    def publish(self, name: str, data: object = None) -> None:
        for listener in list(self.listeners):
            try:
                listener.put_nowait(Event(name, data))
            except asyncio.QueueFull:
                self._end(listener)

    def close(self) -> None:
        """End all streams, so that the server need not wait for browsers to leave."""
        for listener in list(self.listeners):
            self._end(listener)

    async def listen(self) -> AsyncIterator[bytes]:
        """Server-sent events, beginning with `ready`: from there on nothing is missed."""
        queue: asyncio.Queue[Event | None] = asyncio.Queue(BACKLOG)
        self.listeners.add(queue)
        try:
            yield Event("ready").encode()
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), PING_SECONDS)
                except TimeoutError:
                    yield b": still here\n\n"
                    continue
                if event is None:
                    return
                yield event.encode()
        finally:
            self.listeners.discard(queue)

    def _end(self, listener: asyncio.Queue[Event | None]) -> None:
        self.listeners.discard(listener)
        while not listener.empty():
            listener.get_nowait()
        listener.put_nowait(None)
