"""The latest state of the system, for all browsers that are connected."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import msgspec

from messaging.backoff import wait_for_any

PING_SECONDS = 2.0


class Board:
    """The latest results. A listener gets what changed since its last event, so a slow one skips states instead of lagging."""

    def __init__(self) -> None:
        self.seq = 0
        self.listeners = 0
        self.is_watched = asyncio.Event()
        self._parts: dict[str, tuple[int, Any]] = {}
        self._changed = asyncio.Event()

    def __getitem__(self, name: str) -> Any:
        return self._parts[name][1] if name in self._parts else None

    def put(self, name: str, part: Any) -> None:
        if name not in self._parts or self._parts[name][1] != part:
            self.seq += 1
            self._parts[name] = (self.seq, part)
            self._changed.set()
            self._changed = asyncio.Event()

    async def listen(self, stopping: asyncio.Event) -> AsyncIterator[bytes]:
        """Server-sent events: first everything, then each change, and a ping every 2 s without one."""
        self.listeners += 1
        self.is_watched.set()
        seen = 0
        try:
            while not stopping.is_set():
                changed = self._changed
                fresh = {name: part for name, (seq, part) in self._parts.items() if seq > seen}
                if fresh:
                    seen = self.seq
                    yield b"event: change\ndata: " + msgspec.json.encode({"seq": seen, "parts": fresh}) + b"\n\n"
                    continue
                await wait_for_any(changed, stopping, seconds=PING_SECONDS)
                if not changed.is_set():
                    yield b"event: ping\ndata: \n\n"
        finally:
            self.listeners -= 1
            if not self.listeners:  # no query runs any more, so the results become stale
                self.is_watched.clear()
                self._parts.clear()
