"""Whether anything grows: of each series of samples, the last third of a run against the first.

The median of a third stands for it, so that neither a spike nor a fault decides. The first tenth of a run is left out: processes
import modules, fill their pools and caches, and prepare statements.

Latency is compared only if the machine was not much busier in the last third: other programs use the machine, too.

A series grows if the last median is above the first by more than both tolerances. They are wider than what was seen to go up
and down, and narrower than a leak: in ten minutes at 20 events a second, 15 MB are 1,200 bytes an event; in an hour, 200.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf
from statistics import median
from typing import NamedTuple

WARM_UP = 0.1  # of the samples
ENOUGH = 30  # samples, below which nothing is said

Samples = Sequence[
    Mapping[str, float]
]  # one after another, by the name of the series; a series may be missing in a sample


class Tolerance(NamedTuple):
    """How far the last median may be above the first: a share of the first, and an amount in the unit of the series."""

    share: float
    amount: float


class Measure(NamedTuple):
    """What is measured, in which unit, and how much more of it is no growth."""

    title: str
    unit: str
    tolerance: Tolerance


# By the first part of a series' name, which is `measure` or `measure/process`.
MEASURES = {
    # The bus looks for cycles rarely, so that its memory goes up and down by 12 MB.
    "memory": Measure("resident memory", "MB", Tolerance(0.10, 15.0)),
    "files": Measure("open file descriptors", "", Tolerance(0.10, 8.0)),  # idle HTTP connections come and go
    # A pool opens a connection when all others are in use, and keeps it: up to ten for each process.
    "connections": Measure("connections to the database", "", Tolerance(0.10, 20.0)),
    "database": Measure("database size per event", "KB", Tolerance(0.10, 0.2)),  # indexes split pages in steps
    "rows": Measure("rows of outbox and claims per event", "", Tolerance(0.05, 0.02)),
    "waiting": Measure("events and texts that wait", "", Tolerance(0.50, 50.0)),  # what is under way at one moment
    "bus": Measure("file of the bus", "MB", Tolerance(0.10, 4.0)),  # its write-ahead log is kept up to 4 MB
    "latency": Measure("from the tap to the SMS", "ms", Tolerance(0.50, 50.0)),
    "load": Measure(
        "load of the machine per core", "", Tolerance(inf, inf)
    ),  # shown beside the latency, and never judged
}
BUSIER = 1.5  # times the load of the first third, above which latencies are not compared


@dataclass(frozen=True, slots=True)
class Verdict:
    series: str
    first: float
    last: float
    grows: bool
    comparable: bool = True

    @property
    def measure(self) -> Measure:
        return MEASURES[self.series.partition("/")[0]]


def judge(samples: Samples) -> list[Verdict]:
    """A verdict for each series that has enough samples."""
    verdicts = list[Verdict]()
    for series in sorted({name for sample in samples for name in sample}):
        values = [sample[series] for sample in samples if series in sample]
        values = values[int(len(values) * WARM_UP) :]
        if len(values) < ENOUGH:
            continue
        third = len(values) // 3
        first, last = median(values[:third]), median(values[-third:])
        share, amount = MEASURES[series.partition("/")[0]].tolerance
        verdicts.append(Verdict(series, first, last, last - first > max(first * share, amount)))
    if any(one.series == "load" and one.last > one.first * BUSIER for one in verdicts):
        return [replace(one, grows=False, comparable=False) if one.series == "latency" else one for one in verdicts]
    return verdicts
