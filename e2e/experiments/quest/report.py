"""The report of `fern quest`: tables for the terminal and for the documentation, and the outcomes that its chart shows."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

from e2e.experiments.documentation import markdown_table
from e2e.experiments.quest.chart import (
    AMBER,
    CROSSES,
    DOTS,
    FULL,
    GREEN,
    GREY,
    LINES,
    PURPLE,
    RED,
    RHOMBS,
    OutcomeStyle,
)
from e2e.experiments.quest.designs import Ours
from e2e.experiments.quest.environment import FaultNames, LabourOutcome
from e2e.experiments.quest.faults import FAULTS, RATE, draw
from fern.output import print_table

NOTHING = "nothing"


STYLES = {
    LabourOutcome.ONCE: OutcomeStyle("completed, one text", GREEN, FULL),
    LabourOutcome.NONE: OutcomeStyle("not completed, no text", GREY, DOTS),
    LabourOutcome.LOST: OutcomeStyle("lost: completed, no text", RED, CROSSES),
    LabourOutcome.DUPLICATED: OutcomeStyle("duplicated: more than one text", AMBER, LINES),
    LabourOutcome.PHANTOM: OutcomeStyle("phantom: not completed, a text", PURPLE, RHOMBS),
}
RIGHT = (LabourOutcome.ONCE, LabourOutcome.NONE)


def schedule(seed: int, labours: int, rates: Mapping[str, float]) -> list[FaultNames]:
    """The faults of each labour: none for the first, one fault alone for each of the next, then those that are drawn."""
    alone = [FaultNames(), *(FaultNames({name}) for name in FAULTS)]
    return alone + [draw(seed, number, rates) for number in range(labours)]


@dataclass(frozen=True, slots=True)
class QuestReport:
    """`hits` and `counts` are of the labours whose faults were drawn; `alone` has the outcomes of the others."""

    seed: int
    labours: int
    rates: dict[str, float]
    hits: dict[str, int]
    counts: dict[str, dict[LabourOutcome, int]]
    alone: dict[str, dict[str, LabourOutcome]]

    @classmethod
    def of(
        cls, seed: int, rates: Mapping[str, float], labours: int, outcomes: Mapping[str, Sequence[LabourOutcome]]
    ) -> "QuestReport":
        names = [NOTHING, *FAULTS]
        hits = Counter(name for met in schedule(seed, labours, rates)[len(names) :] for name in met)
        drawn = {design: Counter(all_[len(names) :]) for design, all_ in outcomes.items()}
        return cls(
            seed,
            labours,
            rates={name: rates.get(name, RATE) for name in FAULTS},
            hits={name: hits[name] for name in FAULTS},
            counts={design: {outcome: counter[outcome] for outcome in STYLES} for design, counter in drawn.items()},
            alone={design: dict(zip(names, all_, strict=False)) for design, all_ in outcomes.items()},
        )

    @property
    def broken(self) -> list[LabourOutcome]:
        """The outcomes in our design that must never occur."""
        alone, counts = self.alone[Ours.name].values(), self.counts[Ours.name]
        return [outcome for outcome in STYLES if outcome not in RIGHT and (outcome in alone or counts[outcome])]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__slots__, "broken")}


# The tables


def count_rows(report: QuestReport) -> list[list[str]]:
    """The number of labours with each outcome, for each design; the first row is the heading."""
    rows = [[name, *map(str, counts.values())] for name, counts in report.counts.items()]
    return [["design", *STYLES], *rows]


def fault_rows(report: QuestReport, mark: Callable[[str], str]) -> list[list[str]]:
    """The outcome of each fault alone; `mark` emphasises those that are wrong."""
    rows = [["fault", "hits", *report.alone]]
    for fault in (NOTHING, *FAULTS):
        outcomes = (by_fault[fault] for by_fault in report.alone.values())
        cells = (outcome if outcome in RIGHT else mark(outcome) for outcome in outcomes)
        rows.append([fault, str(report.hits.get(fault, "")), *cells])
    return rows


def show(report: QuestReport) -> None:
    click.echo(f"\n{report.labours} labours, one person each, seed {report.seed}; and each fault alone:\n")
    for heading, *rows in (count_rows(report), fault_rows(report, "[red]{}[/]".format)):
        print_table(" | ".join(heading), rows)
        click.echo()


# In the documentation


def section(report: QuestReport) -> str:
    """The section of the page, without dates and times, so that a second run changes nothing."""
    unusual = ", ".join(f"{name} {rate:g}" for name, rate in report.rates.items() if rate != RATE)
    return "\n".join(
        [
            "![With our design no text was lost, duplicated or invented; with every other design some were.](images/quest.svg)",
            "",
            f"{report.labours} labours with one person each, seed {report.seed}. Each fault hits a labour with a probability of",
            f"{RATE:g}{', except ' + unusual if unusual else ''}, independently of the others.",
            "",
            *markdown_table(count_rows(report), "|---|" + "--:|" * len(STYLES)),
            "",
            "The outcome when a labour is hit by one fault only; *hits* counts the labours above that were hit by it:",
            "",
            *markdown_table(fault_rows(report, "**{}**".format), "|---|--:|" + "---|" * len(report.alone)),
        ]
    )
