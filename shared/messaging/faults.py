"""Fault points: named places between two steps where a test can crash, freeze or hold a process. Inert in production.

A point is a module-level `FaultPoint`, awaited between two steps that are not atomic together. A test in the same process arms it
with `point.arm(action)`. From outside, `FERN_CRASH_AT=name` or `FERN_CRASH_AT=name:3` (the third visit) ends the process with
SIGKILL, as a power cut would: no clean-up, no flush. With `FERN_CRASH_AT=@file` the file names the point, and is read at each
visit, so that a running process can be armed. If it says `once name`, the process deletes it and dies, so that its successor does
not; if it says `freeze name`, the process deletes it and suspends itself (SIGSTOP).
"""

import os
import signal
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path

POINTS: dict[str, "FaultPoint"] = {}

Action = Callable[[], Awaitable[None]]


class FaultPoint:
    __slots__ = ("_action", "meaning", "name")

    def __init__(self, name: str, meaning: str) -> None:
        self.name, self.meaning = name, meaning
        self._action: Action | None = None
        if name in POINTS:
            raise ValueError(f"fault point {name} exists already")
        POINTS[name] = self
        armed, _, count = os.environ.get("FERN_CRASH_AT", "").partition(":")
        if armed == name:
            self._action = _crash_at_visit(int(count or 1))
        elif armed.startswith("@"):
            self._action = _crash_when_named(name, Path(armed[1:]))

    async def __call__(self) -> None:
        if self._action is not None:
            await self._action()

    def arm(self, action: Action) -> None:
        self._action = action

    def disarm(self) -> None:
        self._action = None


def _crash_at_visit(count: int) -> Action:
    visits = 0

    async def crash() -> None:
        nonlocal visits
        visits += 1
        if visits >= count:
            os.kill(os.getpid(), signal.SIGKILL)

    return crash


def _crash_when_named(name: str, file: Path) -> Action:
    async def crash() -> None:
        with suppress(OSError):  # no such file: not armed
            armed = file.read_text()  # noqa: ASYNC240  (a local file of one line, in a test)
            if armed == name:
                os.kill(os.getpid(), signal.SIGKILL)
            for word, number in (("once", signal.SIGKILL), ("freeze", signal.SIGSTOP)):
                if armed == f"{word} {name}":
                    file.unlink()  # noqa: ASYNC240
                    os.kill(os.getpid(), number)

    return crash
