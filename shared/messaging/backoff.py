"""Waiting: for events with a limit, and between retries with pauses that double, are capped, and have jitter."""

import asyncio
import random
from collections.abc import Collection
from typing import Any


def delay(attempt: int, *, base: float, cap: float) -> float:
    """Seconds before try number `attempt` + 1; between half and all of base * 2^(attempt-1), at most `cap`."""
    ceiling = min(cap, base * 2.0 ** min(attempt - 1, 30))
    return ceiling * (0.5 + random.random() / 2)  # noqa: S311


class Backoff:
    """Counts failures in a row."""

    def __init__(self, *, base: float = 0.1, cap: float = 5.0) -> None:
        self._base, self._cap, self.failures = base, cap, 0

    def next(self) -> float:
        self.failures += 1
        return delay(self.failures, base=self._base, cap=self._cap)

    def reset(self) -> None:
        self.failures = 0


async def wait_for_any(*events: asyncio.Event, tasks: Collection[asyncio.Task[Any]] = (), seconds: float) -> None:
    """Wait until one of the events is set, one of the tasks is done, or `seconds` are over."""
    waiters = [asyncio.ensure_future(event.wait()) for event in events]
    await asyncio.wait([*waiters, *tasks], timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
    for waiter in waiters:
        waiter.cancel()


async def wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for the event. True as soon as it is set, False after `seconds`."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
        return True
    except TimeoutError:
        return False
