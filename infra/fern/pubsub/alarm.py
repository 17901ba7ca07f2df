"""One timer for all the deadlines of a subscription."""

import asyncio
import itertools
from collections.abc import Callable
from heapq import heapify, heappop, heappush
from typing import Final

from fern.pubsub.consumer import Handed

_SMALL: Final = 10_000


class Alarm:
    """Rings with everything that is due. An entry is a whole batch, because a batch shares its deadline. What is settled earlier
    stays where it is until it is due, or until there is too much of it."""

    def __init__(self, ring: Callable[[list[Handed]], None]) -> None:
        self._ring = ring
        self._entries: list[tuple[float, int, list[Handed]]] = []
        self._number = itertools.count()
        self._count = 0
        self._tidy_at = _SMALL
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, handed: list[Handed]) -> None:
        if not handed:
            return
        heappush(self._entries, (when, next(self._number), handed))
        self._count += len(handed)
        if self._count > self._tidy_at:
            self._tidy()
        if self._entries and self._entries[0][0] == when:
            self._arm()

    def stop(self) -> None:
        self._entries.clear()
        self._arm()

    def _tidy(self) -> None:
        """Rarely enough that each entry is looked at only a few times."""
        entries = [(when, number, _still_due(handed, when)) for when, number, handed in self._entries]
        self._entries = [entry for entry in entries if entry[2]]
        heapify(self._entries)
        self._count = sum(len(handed) for _, _, handed in self._entries)
        self._tidy_at = max(_SMALL, 2 * self._count)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._entries[0][0], self._wake) if self._entries else None

    def _wake(self) -> None:
        now = asyncio.get_running_loop().time()
        due: list[Handed] = []
        while self._entries and self._entries[0][0] <= now:
            when, _, handed = heappop(self._entries)
            self._count -= len(handed)
            due += _still_due(handed, when)
        self._arm()
        self._ring(due)


def _still_due(handed: list[Handed], when: float) -> list[Handed]:
    """Without those that were settled, handed out anew or extended in the meantime."""
    return [
        (ack_id, delivery)
        for ack_id, delivery in handed
        if delivery.ack_id == ack_id and delivery.deadline <= when and not delivery.acked
    ]
