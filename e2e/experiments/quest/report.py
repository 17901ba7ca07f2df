"""The report of `fern quest`: tables for the terminal and for the documentation, and a chart.

In the chart every outcome has its own pattern and its number, so that colour is never the only difference. The SVG follows the
reader's light or dark mode, and has a description in words.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple
from xml.sax.saxutils import escape

import click

from e2e.experiments.quest.designs import Ours
from e2e.experiments.quest.environment import FaultNames, LabourOutcome
from e2e.experiments.quest.faults import FAULTS, RATE, draw
from fern.output import print_table

NOTHING = "nothing"


class OutcomeStyle(NamedTuple):
    """How an outcome is drawn; the colours are those of light and of dark mode."""

    meaning: str
    colours: tuple[str, str]
    pattern: str


_X, _LINES, _RHOMB = (
    f'<path d="{path}" class="{kind}"/>'
    for path, kind in (("M0 0 8 8M8 0 0 8", "line"), ("M2 0V8M6 0V8", "line"), ("M4 0 8 4 4 8 0 4Z", "fill"))
)
_FULL, _DOT = '<rect width="8" height="8" class="fill"/>', '<circle cx="4" cy="4" r="1" class="fill"/>'
STYLES = {
    LabourOutcome.ONCE: OutcomeStyle("completed, one text", ("#1a7f64", "#2f9e7f"), _FULL),
    LabourOutcome.NONE: OutcomeStyle("not completed, no text", ("#818b98", "#8b949e"), _DOT),
    LabourOutcome.LOST: OutcomeStyle("lost: completed, no text", ("#c0392b", "#ff7b72"), _X),
    LabourOutcome.DUPLICATED: OutcomeStyle("duplicated: more than one text", ("#b26a00", "#e3a13a"), _LINES),
    LabourOutcome.PHANTOM: OutcomeStyle("phantom: not completed, a text", ("#7a3fb3", "#c297ff"), _RHOMB),
}
RIGHT = (LabourOutcome.ONCE, LabourOutcome.NONE)


def schedule(seed: int, labours: int, rates: Mapping[str, float]) -> list[FaultNames]:
    """One labour without a fault, one for each fault alone; then those whose faults are drawn."""
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


def _segments(counts: Mapping[LabourOutcome, int], width: int) -> Iterator[tuple[LabourOutcome, int, int, int]]:
    """Each outcome that occurs, its number, and where its part of the bar begins and ends."""
    total, before = sum(counts.values()), 0
    for outcome, number in counts.items():
        if number:
            yield outcome, number, round(before * width / total), round((before + number) * width / total)
            before += number


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
    """Without dates and times, so that a second run changes nothing."""
    unusual = ", ".join(f"{name} {rate:g}" for name, rate in report.rates.items() if rate != RATE)
    return "\n".join(
        [
            "![With our design everyone got one text; every other design lost, duplicated or invented some.](images/quest.svg)",
            "",
            f"{report.labours} labours with one person each, seed {report.seed}. Each fault hits a labour with a probability of",
            f"{RATE:g}{', except ' + unusual if unusual else ''}, independently of the others.",
            "",
            *_markdown(count_rows(report), "|---|" + "--:|" * len(STYLES)),
            "",
            "The outcome when a labour is hit by one fault only; *hits* counts the labours above that were hit by it:",
            "",
            *_markdown(fault_rows(report, "**{}**".format), "|---|--:|" + "---|" * len(report.alone)),
        ]
    )


def _markdown(rows: Sequence[Sequence[str]], ruler: str) -> list[str]:
    heading, *others = (f"| {' | '.join(row)} |" for row in rows)
    return [heading, ruler, *others]


_LEFT, _WIDTH, _TOP, _STEP, _HEIGHT = 180, 560, 100, 40, 26
_PAGE, _INK = ("#ffffff", "#0d1117"), ("#1f2328", "#e6edf3")  # colours in light and in dark mode


def svg(counts: Mapping[str, Mapping[LabourOutcome, int]]) -> str:
    """The same numbers give the same file, to the byte."""
    labours, height = sum(next(iter(counts.values())).values()), _TOP + _STEP * len(counts)
    described = [f"{name}: {in_words(outcomes)}" for name, outcomes in counts.items()]
    patterns = "\n".join(
        f'<pattern id="{name}" class="{name}" width="8" height="8" patternUnits="userSpaceOnUse">{style.pattern}</pattern>'
        for name, style in STYLES.items()
    )
    places = [(80, RIGHT), (410, [outcome for outcome in STYLES if outcome not in RIGHT])]
    legend = "\n".join(
        _box(outcome, x, 8 + 26 * y, 28, 16) + f'<text x="{x + 36}" y="{21 + 26 * y}">{STYLES[outcome].meaning}</text>'
        for x, outcomes in places
        for y, outcome in enumerate(outcomes)
    )
    rows = "\n".join(
        _row(name, outcomes, _TOP + _STEP * place) for place, (name, outcomes) in enumerate(counts.items())
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-labelledby="title desc">
<title id="title">Outcomes of {labours} labours in each design, with the same faults</title>
<desc id="desc">{escape(". ".join(described))}.</desc>
<style>
{_style()}
</style>
<defs>
{patterns}
</defs>
{legend}
{rows}
</svg>
"""


def in_words(outcomes: Mapping[LabourOutcome, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)


def _row(name: str, outcomes: Mapping[LabourOutcome, int], y: int) -> str:
    middle = y + _HEIGHT // 2 + 5
    parts = [f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>']
    for outcome, number, start, end in _segments(outcomes, _WIDTH):
        centre = _LEFT + (start + end) / 2
        parts.append(_box(outcome, _LEFT + start, y, end - start, _HEIGHT))
        parts.append(f'<text x="{centre:g}" y="{middle}" text-anchor="middle" class="number">{number}</text>')
    return "\n".join(parts)


def _box(outcome: LabourOutcome, x: int, y: int, width: int, height: int) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="url(#{outcome})" class="{outcome} edge"/>'


def _style() -> str:
    colours: dict[str, tuple[str, str]] = {
        "page": _PAGE,
        "ink": _INK,
        **{outcome: style.colours for outcome, style in STYLES.items()},
    }
    light, dark = (" ".join(f"--{name}: {shade[mode]};" for name, shade in colours.items()) for mode in (0, 1))
    return "\n".join(
        [
            f"svg {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
            *(f".{outcome} {{ --own: var(--{outcome}) }}" for outcome in STYLES),
            ".fill { fill: var(--own) } .line { stroke: var(--own); stroke-width: 2 } .edge { stroke: var(--own) }",
            "text { font: 14px system-ui, sans-serif; fill: var(--ink) }",
            ".number { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px }",
        ]
    )
