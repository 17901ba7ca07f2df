"""One timer for all the deadlines of a subscription."""

import asyncio
import itertools
from collections.abc import Callable
from heapq import heappop, heappush

from fern.pubsub.consumer import Handed


class Alarm:
    """Rings with everything that is due. An entry is a whole batch, because a batch shares its deadline; nothing is ever
    removed early, so whoever is rung checks whether the deadline still holds."""

    def __init__(self, ring: Callable[[list[Handed], float], None]) -> None:
        self._ring = ring
        self._entries: list[tuple[float, int, list[Handed]]] = []
        self._number = itertools.count()
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, handed: list[Handed]) -> None:
        if handed:
            heappush(self._entries, (when, next(self._number), handed))
            if self._entries[0][0] == when:
                self._arm()

    def stop(self) -> None:
        self._entries.clear()
        self._arm()

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._entries[0][0], self._wake) if self._entries else None

    def _wake(self) -> None:
        now = asyncio.get_running_loop().time()
        due: list[Handed] = []
        while self._entries and self._entries[0][0] <= now:
            due += heappop(self._entries)[2]
        self._arm()
        self._ring(due, now)
