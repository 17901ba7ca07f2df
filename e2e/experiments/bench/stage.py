"""What a stage is: its cases, and how one round of them is measured."""

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

from e2e.experiments.bench.environment import Environment


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
    note: str = ""


Round = Callable[[int], dict[str, float]]


@dataclass(frozen=True, slots=True)
class Stage:
    """`open` prepares the stage and yields a function that measures round n: the value of each case, by name."""

    name: str
    title: str
    cases: Mapping[str, Case]
    open: Callable[[Environment, Options], AbstractContextManager[Round]]
    rounds: int | None = None  # at most, if one round takes long
    warm_up: bool = True  # a round that does not count


def rotated(names: Sequence[str], number: int) -> list[str]:
    """Another case begins in every round, so that none profits from its place."""
    start = number % len(names)
    return [*names[start:], *names[:start]]
