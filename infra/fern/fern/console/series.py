"""The metrics of the last five minutes, in memory, and the lines that the page draws from them.

A process sends its metrics every ten seconds or so. Counters are cumulative: what the page shows is their increase.
"""

import time
from collections import deque
from collections.abc import Callable, Iterable
from itertools import pairwise
from typing import Any

from fern.console.otlp import Histogram, Point

SLOT = 10  # seconds
SLOTS = 30
MOST_SERIES = 500
FRESH_SLOTS = 3  # for which a gauge keeps its value if it is not sent again

_OUTBOX, _EVENTS, _SMS, _TAP = (
    "fern.outbox.oldest.waiting",
    "fern.consumer.events",
    "fern.sms.attempts",
    "fern.tap.to.sms",
)
_KEPT = frozenset({_OUTBOX, _EVENTS, _SMS, _TAP})

Key = tuple[Any, ...]
Value = float | Histogram


class _Series:
    """One value a slot, the newest last. A slot is a multiple of `SLOT` seconds."""

    def __init__(self, name: str, attributes: dict[str, Any], is_new: bool) -> None:
        self.name, self.attributes, self._is_new = name, attributes, is_new
        self.values: deque[tuple[int, Value]] = deque(maxlen=SLOTS + 1)

    def put(self, slot: int, value: Value) -> None:
        if self.values and self.values[-1][0] >= slot:
            self.values[-1] = (self.values[-1][0], value)
        else:
            self.values.append((slot, value))

    def gauge(self, slot: int) -> float | None:
        known = [value for at, value in self.values if slot - FRESH_SLOTS < at <= slot]
        return known[-1] if known and isinstance(known[-1], float) else None

    def increases(self) -> Iterable[tuple[int, Value, Value | None]]:
        """Yield each slot with its value and the one before. None stands for a counter that began at 0."""
        slot, value = self.values[0]
        yield slot, value, None if self._is_new else value
        for (_, before), (slot, value) in pairwise(self.values):
            yield slot, value, before


class Metrics:
    """Keeps the series that the page draws, and no other. Beyond `MOST_SERIES`, the one that was sent longest ago is dropped."""

    def __init__(self, now: Callable[[], float] = time.time) -> None:
        self._now, self._began = now, now()
        self._series: dict[Key, _Series] = {}

    def add(self, points: Iterable[Point]) -> None:
        slot = int(self._now()) // SLOT
        for point in points:
            name = _plain(point.name)
            if name not in _KEPT:
                continue
            key = (name, point.process, point.instance, *sorted(point.attributes.items()))
            series = self._series.pop(key, None)
            if series is None:
                # A counter that is older than the console has counted things that are older than the first slot.
                series = _Series(name, dict(point.attributes), is_new=point.start / 1e9 >= self._began)
            series.put(slot, point.value)
            self._series[key] = series
        oldest = slot - SLOTS
        self._series = {key: one for key, one in self._series.items() if one.values[-1][0] > oldest}
        while len(self._series) > MOST_SERIES:
            del self._series[next(iter(self._series))]

    def lines(self) -> list[dict[str, Any]]:
        """The lines of the page, each with a value for every slot, the newest last; None for a slot without a value."""
        newest = int(self._now()) // SLOT
        slots = range(newest - SLOTS + 1, newest + 1)
        handled, repeats = self._count(_EVENTS, "handled", slots), self._count(_EVENTS, "repeat", slots)
        sent, taps = self._count(_SMS, "accepted", slots), self._taps(slots)
        total = [one for one in taps if one]
        return [
            _line("outbox", "Oldest in the outbox", "s", age := self._age(slots), next(reversed(age), None)),
            _line("handled", "Events handled", "count", handled, _sum(handled)),
            _line("repeats", "Duplicates absorbed", "count", repeats, _sum(repeats)),
            _line("sms", "SMS sent", "count", sent, _sum(sent)),
            _line("p50", "Tap to SMS, p50", "s", [_quantile(one, 0.5) for one in taps], _quantile_of(total, 0.5)),
            _line("p99", "Tap to SMS, p99", "s", [_quantile(one, 0.99) for one in taps], _quantile_of(total, 0.99)),
        ]

    def _named(self, name: str) -> list[_Series]:
        return [series for series in self._series.values() if series.name == name]

    def _age(self, slots: range) -> list[float | None]:
        """The age of the oldest event in either outbox, for every slot."""
        found = self._named(_OUTBOX)
        ages = ([one for series in found if (one := series.gauge(slot)) is not None] for slot in slots)
        return [max(known, default=None) for known in ages]

    def _count(self, name: str, outcome: str, slots: range) -> list[float | None]:
        counted = dict[int, float]()
        for series in self._named(name):
            is_wanted = series.attributes.get("outcome") == outcome
            for slot, value, before in series.increases():
                if isinstance(value, float) and not isinstance(before, Histogram):
                    counted[slot] = counted.get(slot, 0.0) + (max(0.0, value - (before or 0.0)) if is_wanted else 0.0)
        return [counted.get(slot) for slot in slots]

    def _taps(self, slots: range) -> list[Histogram | None]:
        found = dict[int, list[Histogram]]()
        for series in self._named(_TAP):
            for slot, value, before in series.increases():
                if isinstance(value, Histogram) and not isinstance(before, float):
                    old = before.counts if before and before.bounds == value.bounds else (0,) * len(value.counts)
                    grown = tuple(max(0, new - was) for new, was in zip(value.counts, old, strict=True))
                    found.setdefault(slot, []).append(Histogram(value.bounds, grown))
        return [_merge(found.get(slot, [])) for slot in slots]


def _plain(name: str) -> str:
    """The name of a metric with dots for underscores, and without its unit."""
    return name.replace("_", ".").removesuffix(".total").removesuffix(".seconds")


def _line(name: str, title: str, unit: str, values: list[float | None], now: float | None) -> dict[str, Any]:
    return {"name": name, "title": title, "unit": unit, "values": values, "now": now}


def _sum(values: list[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _merge(found: list[Histogram]) -> Histogram | None:
    same = [one for one in found if one.bounds == found[0].bounds]
    return Histogram(same[0].bounds, tuple(map(sum, zip(*(one.counts for one in same), strict=True)))) if same else None


def _quantile_of(found: list[Histogram], share: float) -> float | None:
    return _quantile(_merge(found), share)


def _quantile(found: Histogram | None, share: float) -> float | None:
    """A quantile, as if the values of a bucket were spread evenly in it. Above all bounds it is the last bound."""
    if found is None or not found.bounds or not sum(found.counts):
        return None
    rank, seen, low = share * sum(found.counts), 0, 0.0
    for bound, number in zip(found.bounds, found.counts, strict=False):
        if number and seen + number >= rank:
            return low + (bound - low) * (rank - seen) / number
        seen, low = seen + number, bound
    return found.bounds[-1]
