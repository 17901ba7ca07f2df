"""Measures stages, round by round, and computes ratios within each round.

The numbers of one minute cannot be held against those of the next on a shared machine. Every round therefore measures every case
of a stage, each time beginning with another one, and a ratio is the median of the rounds' own ratios.
"""

import statistics
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from e2e.experiments.bench.environment import Environment
from e2e.experiments.bench.stage import Case, Measured, Options, Stage


@dataclass(frozen=True, slots=True)
class Figure:
    """The values of one case in each round, and its ratios to the case that it is compared with."""

    stage: str
    name: str
    case: Case
    values: tuple[float, ...]
    ratios: tuple[float, ...]
    cpus: tuple[float, ...] = ()

    @property
    def value(self) -> float:
        return statistics.median(self.values)

    @property
    def ratio(self) -> float | None:
        return statistics.median(self.ratios) if self.ratios else None

    @property
    def cpu(self) -> float | None:
        """Microseconds of CPU time per piece of work."""
        return statistics.median(self.cpus) if self.cpus else None

    @property
    def reached(self) -> bool | None:
        """Whether the goal is reached; None without a goal."""
        if self.case.goal is None:
            return None
        measured = self.value if self.ratio is None else self.ratio
        return measured <= self.case.goal if self.case.lower else measured >= self.case.goal


def run(
    environment: Environment, stages: Sequence[Stage], options: Options, say: Callable[[str], None]
) -> list[Figure]:
    """Measure stage after stage. What a stage starts ends before the next one begins."""
    figures = list[Figure]()
    for stage in stages:
        rounds = min(options.rounds, stage.rounds or options.rounds)
        say(f"{stage.name}: preparing")
        with ExitStack() as stack:
            local = replace(environment, stack=stack)
            measure = stack.enter_context(stage.open(local, replace(options, rounds=rounds)))
            if stage.warm_up:
                say(f"{stage.name}: warming up")
                measure(0)
            results = []
            for number in range(rounds):
                results.append(measure(number))
                shown = "  ".join(f"{name} {results[-1][name].value:,.4g}" for name in stage.cases)
                say(f"{stage.name}: round {number + 1}/{rounds}  {shown}")
        figures += [figure(stage, name, results) for name in stage.cases]
    return figures


def figure(stage: Stage, name: str, results: Sequence[dict[str, Measured]]) -> Figure:
    case = stage.cases[name]
    values = tuple(result[name].value for result in results)
    ratios = tuple(result[name].value / result[case.against].value for result in results) if case.against else ()
    cpus = tuple(cpu for result in results if (cpu := result[name].cpu) is not None)
    return Figure(stage.name, name, case, values, ratios, cpus)
