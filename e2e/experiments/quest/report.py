"""The report of `fern quest`: tables and a chart, for the terminal and for the documentation.

In the chart every outcome has its own pattern and its number, so that colour is never the only difference. The SVG follows the
reader's light or dark mode, and has a description in words.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from rich.console import Group
from rich.table import Table
from rich.text import Text

from e2e.experiments.quest.designs import Ours
from e2e.experiments.quest.environment import Faults, Outcome
from e2e.experiments.quest.faults import FAULTS, RATE, draw

NOTHING = "nothing"
MEANINGS = {
    Outcome.ONCE: "completed, one text",
    Outcome.NONE: "not completed, no text",
    Outcome.LOST: "lost: completed, no text",
    Outcome.DUPLICATED: "duplicated: more than one text",
    Outcome.PHANTOM: "phantom: not completed, a text",
}
RIGHT = (Outcome.ONCE, Outcome.NONE)


def schedule(seed: int, labours: int, rates: Mapping[str, float]) -> list[Faults]:
    """One labour without a fault, one for each fault alone; then those whose faults are drawn."""
    alone = [Faults(), *(Faults({name}) for name in FAULTS)]
    return alone + [draw(seed, number, rates) for number in range(labours)]


@dataclass(frozen=True, slots=True)
class QuestReport:
    """`hits` and `counts` are of the labours whose faults were drawn; `alone` has the outcomes of the others."""

    seed: int
    labours: int
    rates: dict[str, float]
    hits: dict[str, int]
    counts: dict[str, dict[Outcome, int]]
    alone: dict[str, dict[str, Outcome]]

    @classmethod
    def of(
        cls, seed: int, rates: Mapping[str, float], labours: int, outcomes: Mapping[str, Sequence[Outcome]]
    ) -> "QuestReport":
        names = [NOTHING, *FAULTS]
        hits = Counter(name for met in schedule(seed, labours, rates)[len(names) :] for name in met)
        drawn = {design: Counter(all_[len(names) :]) for design, all_ in outcomes.items()}
        return cls(
            seed,
            labours,
            rates={name: rates.get(name, RATE) for name in FAULTS},
            hits={name: hits[name] for name in FAULTS},
            counts={design: {outcome: counter[outcome] for outcome in MEANINGS} for design, counter in drawn.items()},
            alone={design: dict(zip(names, all_, strict=False)) for design, all_ in outcomes.items()},
        )

    @property
    def broken(self) -> list[Outcome]:
        """The outcomes in our design that must never occur."""
        alone, counts = self.alone[Ours.name].values(), self.counts[Ours.name]
        return [outcome for outcome in MEANINGS if outcome not in RIGHT and (outcome in alone or counts[outcome])]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__slots__, "broken")}


def _segments(counts: Mapping[Outcome, int], width: int) -> Iterator[tuple[Outcome, int, int, int]]:
    """Each outcome that occurs, its number, and where its part of the bar begins and ends."""
    total, before = sum(counts.values()), 0
    for outcome, number in counts.items():
        if number:
            yield outcome, number, round(before * width / total), round((before + number) * width / total)
            before += number


# In the terminal

_CELLS = 50
_INK = {
    Outcome.ONCE: ("█", "green"),
    Outcome.NONE: ("·", "dim"),
    Outcome.LOST: ("x", "red"),
    Outcome.DUPLICATED: ("▒", "yellow"),
    Outcome.PHANTOM: ("◆", "magenta"),
}


def shown(report: QuestReport) -> Group:
    bars = Table(box=None, pad_edge=False, show_header=False)
    for number, (name, counts) in enumerate(report.counts.items(), 1):
        bar, words = Text(), Text()
        for outcome, count, start, end in _segments(counts, _CELLS):
            mark, style = _INK[outcome]
            bar.append(mark * (end - start), style)
            words.append(f"{count} {outcome}  ", "" if outcome in RIGHT else style)
        bars.add_row(f"{number} {name}", bar)
        bars.add_row("", words)
    legend = [Text.assemble((mark * 3, style), f" {MEANINGS[outcome]}") for outcome, (mark, style) in _INK.items()]
    columns = ("alone", "hits", *map(str, range(1, 1 + len(report.alone))))
    alone = Table(*columns, box=None, padding=(0, 1, 0, 0))
    for name in (NOTHING, *FAULTS):
        outcomes = [design[name] for design in report.alone.values()]
        alone.add_row(
            name,
            str(report.hits.get(name, "")),
            *(Text(outcome, "" if outcome in RIGHT else "red") for outcome in outcomes),
        )
    title = f"{report.labours} labours, one person each, seed {report.seed}"
    return Group("", title, "", bars, "", *legend, "", alone)


# In the documentation


def section(report: QuestReport) -> str:
    """Without dates and times, so that a second run changes nothing."""
    names = list(report.counts)
    unusual = ", ".join(f"{name} {rate:g}" for name, rate in report.rates.items() if rate != RATE)
    rows = [
        "![With our design everyone got one text; every other design lost, duplicated or invented some.](images/quest.svg)",
        "",
        f"{report.labours} labours with one person each, seed {report.seed}. Each fault hits a labour with a probability of",
        f"{RATE:g}{', except ' + unusual if unusual else ''}, independently of the others.",
        "",
        f"| design | {' | '.join(MEANINGS)} |",
        "|---|" + "--:|" * len(MEANINGS),
        *(f"| {name} | {' | '.join(map(str, counts.values()))} |" for name, counts in report.counts.items()),
        "",
        "The outcome when a labour is hit by one fault only; *hits* counts the labours above that were hit by it:",
        "",
        f"| fault | hits | {' | '.join(names)} |",
        "|---|--:|" + "---|" * len(names),
    ]
    for fault in (NOTHING, *FAULTS):
        outcomes = (report.alone[name][fault] for name in names)
        cells = (outcome if outcome in RIGHT else f"**{outcome}**" for outcome in outcomes)
        rows.append(f"| {fault} | {report.hits.get(fault, '')} | {' | '.join(cells)} |")
    return "\n".join(rows)


_LEFT, _WIDTH, _TOP, _STEP, _HEIGHT = 180, 560, 100, 40, 26
_COLOURS = {  # in light and in dark mode
    "page": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    Outcome.ONCE: ("#1a7f64", "#2f9e7f"),
    Outcome.NONE: ("#818b98", "#8b949e"),
    Outcome.LOST: ("#c0392b", "#ff7b72"),
    Outcome.DUPLICATED: ("#b26a00", "#e3a13a"),
    Outcome.PHANTOM: ("#7a3fb3", "#c297ff"),
}
_PATTERNS = {
    Outcome.ONCE: '<rect width="8" height="8" class="fill"/>',
    Outcome.NONE: '<circle cx="4" cy="4" r="1" class="fill"/>',
    Outcome.LOST: '<path d="M0 0 8 8M8 0 0 8" class="line"/>',
    Outcome.DUPLICATED: '<path d="M2 0V8M6 0V8" class="line"/>',
    Outcome.PHANTOM: '<path d="M4 0 8 4 4 8 0 4Z" class="fill"/>',
}
_LEGEND = {
    Outcome.ONCE: (80, 0),
    Outcome.NONE: (80, 1),
    Outcome.LOST: (410, 0),
    Outcome.DUPLICATED: (410, 1),
    Outcome.PHANTOM: (410, 2),
}


def svg(counts: Mapping[str, Mapping[Outcome, int]]) -> str:
    """The same numbers give the same file, to the byte."""
    labours, height = sum(next(iter(counts.values())).values()), _TOP + _STEP * len(counts)
    described = [f"{name}: {in_words(outcomes)}" for name, outcomes in counts.items()]
    patterns = "\n".join(
        f'<pattern id="{outcome}" class="{outcome}" width="8" height="8" patternUnits="userSpaceOnUse">{shape}</pattern>'
        for outcome, shape in _PATTERNS.items()
    )
    legend = "\n".join(
        _box(outcome, x, 8 + 26 * y, 28, 16) + f'<text x="{x + 36}" y="{21 + 26 * y}">{MEANINGS[outcome]}</text>'
        for outcome, (x, y) in _LEGEND.items()
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


def in_words(outcomes: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items() if number)


def _row(name: str, outcomes: Mapping[Outcome, int], y: int) -> str:
    middle = y + _HEIGHT // 2 + 5
    parts = [f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>']
    for outcome, number, start, end in _segments(outcomes, _WIDTH):
        centre = _LEFT + (start + end) / 2
        parts.append(_box(outcome, _LEFT + start, y, end - start, _HEIGHT))
        parts.append(f'<text x="{centre:g}" y="{middle}" text-anchor="middle" class="number">{number}</text>')
    return "\n".join(parts)


def _box(outcome: Outcome, x: int, y: int, width: int, height: int) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="url(#{outcome})" class="{outcome} edge"/>'


def _style() -> str:
    light, dark = (" ".join(f"--{name}: {shade[mode]};" for name, shade in _COLOURS.items()) for mode in (0, 1))
    return "\n".join(
        [
            f"svg {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
            *(f".{outcome} {{ --own: var(--{outcome}) }}" for outcome in MEANINGS),
            ".fill { fill: var(--own) } .line { stroke: var(--own); stroke-width: 2 } .edge { stroke: var(--own) }",
            "text { font: 14px system-ui, sans-serif; fill: var(--ink) }",
            ".number { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px }",
        ]
    )
