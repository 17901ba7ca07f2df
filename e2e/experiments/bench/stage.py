"""What a stage is: its cases, and how one round of them is measured."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeVar

from e2e.experiments.bench.environment import Environment

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Options:
    """rounds    how often every case is measured
    scale     the share of the usual work: the tests use a small one
    rows      rows that the tables have in `growth`
    seconds   how long `memory` runs
    profile   a file for the costs of the functions of our side, in the last round
    """

    rounds: int = 5
    scale: float = 1.0
    rows: Mapping[str, int] = field(default_factory=dict)
    seconds: float = 60.0
    profile: str = ""

    def sized(self, count: int, least: int = 20) -> int:
        return max(least, int(count * self.scale))


@dataclass(frozen=True, slots=True)
class Case:
    """`against` is the case whose value of the same round this one is divided by. `goal` is the least ratio, or the most if
    `lower` values are better.
    """

    title: str
    unit: str
    against: str = ""
    goal: float | None = None
    lower: bool = False


class Measured(NamedTuple):
    """A measured value, in the unit of its case. `cpu` is the CPU time of the design's own process, in microseconds per piece of
    work: it says more than the rate on a machine where other programs run as well.
    """

    value: float
    cpu: float | None = None

    @classmethod
    def rate(cls, result: dict[str, Any]) -> "Measured":
        """Pieces of work a second, from the answer of a measured program."""
        return cls(result["count"] / result["seconds"], 1e6 * result["cpu"] / result["count"])


Round = Callable[[int], dict[str, Measured]]


@dataclass(frozen=True, slots=True)
class Stage:
    """`open` prepares the stage and yields a function that measures round n: the value of each case, by name, and of
    cases that are not shown and only compared with."""

    name: str
    title: str
    cases: Mapping[str, Case]
    open: Callable[[Environment, Options], AbstractContextManager[Round]]
    rounds: int | None = None  # at most, if one round takes long
    warm_up: bool = True  # a round that does not count
    profiled: bool = False  # our side of it can run under the profiler


def rotated(names: Sequence[T], number: int) -> list[T]:
    """The cases in the order of a round. Another one begins in every round, so that none profits from its place."""
    start = number % len(names)
    return [*names[start:], *names[:start]]
