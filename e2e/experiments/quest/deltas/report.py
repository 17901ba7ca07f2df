"""The report of `fern quest deltas`: which design is right under which misfortune, what it costs, and why it breaks."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import click

from e2e.experiments.documentation import markdown_table
from e2e.experiments.quest.chart import AMBER, CROSSES, FULL, GREEN, LINES, RED, OutcomeStyle
from e2e.experiments.quest.deltas import DESIGNS
from e2e.experiments.quest.deltas.design import Design, Semantics
from e2e.experiments.quest.deltas.misfortunes import meanings
from e2e.experiments.quest.deltas.runner import DesignResult, TotalOutcome
from e2e.experiments.quest.deltas.with_ids import Ours
from fern.output import print_table

STYLES = {
    TotalOutcome.RIGHT: OutcomeStyle("right: every event once", GREEN, FULL),
    TotalOutcome.TOO_LITTLE: OutcomeStyle("too little: an event is missing", RED, CROSSES),
    TotalOutcome.TOO_MUCH: OutcomeStyle("too much: an event is added twice", AMBER, LINES),
}
RIGHT = (TotalOutcome.RIGHT,)
FORGETTING = "replay"  # the misfortune that says how long a design remembers, and nothing about its semantics

Mark = Callable[[str], str]


@dataclass(frozen=True, slots=True)
class DeltasReport:
    seed: int
    labours: int
    results: Mapping[str, DesignResult]

    def count(self, design: str, misfortune: str) -> dict[TotalOutcome, int]:
        counter = Counter(self.results[design].outcomes[misfortune])
        return {outcome: counter[outcome] for outcome in STYLES}

    def counts(self) -> dict[str, dict[TotalOutcome, int]]:
        """The outcomes of all labours of a design, under any misfortune."""
        sums = dict[str, dict[TotalOutcome, int]]()
        for name, result in self.results.items():
            counter = Counter(outcome for outcomes in result.outcomes.values() for outcome in outcomes)
            sums[name] = {outcome: counter[outcome] for outcome in STYLES}
        return sums

    def always_right(self) -> list[str]:
        return [
            name for name, counts in self.counts().items() if not any(counts[one] for one in STYLES if one not in RIGHT)
        ]

    def shown_semantics(self, design: str) -> Semantics | None:
        """The semantics that the outcomes show; None if the design both loses and duplicates before it forgets anything."""
        by_misfortune = self.results[design].outcomes
        seen = {one for name, all_ in by_misfortune.items() if name != FORGETTING for one in all_} - set(RIGHT)
        semantics = {
            frozenset[TotalOutcome](): Semantics.EFFECTIVELY_ONCE,
            frozenset({TotalOutcome.TOO_LITTLE}): Semantics.AT_MOST_ONCE,
            frozenset({TotalOutcome.TOO_MUCH}): Semantics.AT_LEAST_ONCE,
        }
        return semantics.get(frozenset(seen))

    @property
    def broken(self) -> list[str]:
        """The misfortunes under which our design is wrong."""
        return [name for name, all_ in self.results[Ours.name].outcomes.items() if set(all_) - set(RIGHT)]

    def to_json(self) -> dict[str, Any]:
        designs = [self._design_to_json(design) for design in DESIGNS]
        about = {"seed": self.seed, "labours": self.labours, "misfortunes": meanings(), "designs": designs}
        return about | {"always_right": self.always_right(), "broken": self.broken}

    def _design_to_json(self, design: type[Design]) -> dict[str, Any]:
        described = {field: getattr(design, field) for field in ("name", "semantics", "remembers", "breaks")}
        result = self.results[design.name]
        outcomes = {misfortune: self.count(design.name, misfortune) for misfortune in result.outcomes}
        ours = {"ours": design is Ours, "statements": result.statements, "rows": result.rows}
        return described | ours | {"outcomes": outcomes}


# The tables; the first row of each is the heading.


def outcome_rows(report: DeltasReport, mark: Mark) -> list[list[str]]:
    rows = [["design", *meanings()]]
    for design in report.results:
        rows.append([design, *(_cell(report.count(design, misfortune), mark) for misfortune in meanings())])
    return rows


def _cell(count: Mapping[TotalOutcome, int], mark: Mark) -> str:
    signs = {TotalOutcome.TOO_LITTLE: "-", TotalOutcome.TOO_MUCH: "+"}
    wrong = [mark(f"{sign}{count[outcome]}") for outcome, sign in signs.items() if count[outcome]]
    return " ".join([str(count[TotalOutcome.RIGHT]), *wrong])


def cost_rows(report: DeltasReport) -> list[list[str]]:
    rows = [["design", "semantics", "statements", "rows", "remembers", "where it breaks, or what it needs"]]
    for design in DESIGNS:
        cost = report.results[design.name]
        described = [design.name, design.semantics, str(cost.statements), str(cost.rows), design.remembers]
        rows.append([*described, design.breaks])
    return rows


def show(report: DeltasReport) -> None:
    click.echo(f"\n{report.labours} labours for each misfortune, which hits about half of them; seed {report.seed}.")
    click.echo("Labours whose totals are right, -too little, +too much:\n")
    for heading, *rows in (
        outcome_rows(report, "[red]{}[/]".format),
        [["misfortune", ""], *([name, meaning] for name, meaning in meanings().items())],
        cost_rows(report),
    ):
        print_table(" | ".join(heading), rows)
        click.echo()


def section(report: DeltasReport) -> str:
    """The section of the page, without dates and times, so that a second run changes nothing."""
    right = ", ".join(f"*{name}*" for name in report.always_right())
    return "\n".join(
        [
            f"![Right under every misfortune: {right.replace('*', '')}.](images/quest-deltas.svg)",
            "",
            f"{report.labours} labours for each misfortune, which hits about half of them; seed {report.seed}. A cell has the",
            "labours whose totals are right, then those with too little (-) or too much (+).",
            "",
            *markdown_table(outcome_rows(report, "**{}**".format), "|---|" + "--:|" * len(meanings())),
            "",
            f"Right under every misfortune: {right}.",
            "",
            *markdown_table([["misfortune", "what happens"], *map(list, meanings().items())], "|---|---|"),
            "",
            "What each design promises, costs and needs. *Statements* are those of one event, with BEGIN and COMMIT;",
            "*rows* are kept for each event besides the totals.",
            "",
            *markdown_table(cost_rows(report), "|---|---|--:|--:|---|---|"),
        ]
    )
