"""Polling with a deadline: `until` for synchronous code, `eventually` for asynchronous code.

Both call `look` until `holds` is true of its result, and return that result. After `seconds` they fail with `what` and the last
result. The default deadline only ends a test that has already failed; it never decides whether a test passes.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

PATIENCE = 120.0  # seconds
INTERVAL = 0.03  # seconds

T = TypeVar("T")


def until(
    look: Callable[[], T], holds: Callable[[T], object] = bool, *, what: str = "", seconds: float = PATIENCE
) -> T:
    deadline = time.monotonic() + seconds
    while not holds(seen := look()):
        _check(deadline, what, seconds, seen)
        time.sleep(INTERVAL)
    return seen


async def eventually(
    look: Callable[[], Awaitable[T]], holds: Callable[[T], object] = bool, *, what: str = "", seconds: float = PATIENCE
) -> T:
    deadline = time.monotonic() + seconds
    while not holds(seen := await look()):
        _check(deadline, what, seconds, seen)
        await asyncio.sleep(INTERVAL)
    return seen


def _check(deadline: float, what: str, seconds: float, seen: object) -> None:
    if time.monotonic() > deadline:
        raise AssertionError(f"not within {seconds:g} s: {what or 'the condition'}; last seen: {seen!r}")
