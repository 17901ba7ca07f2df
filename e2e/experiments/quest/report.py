"""What the race showed: a table and a chart, in the terminal and in the documentation.

In the chart every fate has a pattern of its own and its number, so nothing depends on telling colours apart; the SVG follows the
reader's light or dark mode, and says everything once more in words.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from xml.sax.saxutils import escape

from rich.console import Group
from rich.table import Table
from rich.text import Text

from e2e.experiments.quest.pipelines import Ours
from e2e.experiments.quest.race import Fate
from e2e.experiments.quest.schedule import MISFORTUNES, RATE, draw

NOTHING = "nothing"
MEANINGS = {
    Fate.ONCE: "told once",
    Fate.NONE: "nothing happened, nobody told",
    Fate.LOST: "lost: it happened, nobody told",
    Fate.DUPLICATED: "duplicated: told more than once",
    Fate.PHANTOM: "phantom: told of what never happened",
}
RIGHT = (Fate.ONCE, Fate.NONE)


def schedule(seed: int, labours: int, rates: Mapping[str, float]) -> list[frozenset[str]]:
    """One labour that meets nothing, one for each misfortune that meets no other; then those whose misfortunes are drawn."""
    alone = [frozenset[str](), *(frozenset({name}) for name in MISFORTUNES)]
    return alone + [draw(seed, number, rates) for number in range(labours)]


@dataclass(frozen=True, slots=True)
class Report:
    """`hits` and `counts` are of the labours whose misfortunes were drawn; `alone` are the fates of the others."""

    seed: int
    labours: int
    rates: dict[str, float]
    hits: dict[str, int]
    counts: dict[str, dict[Fate, int]]
    alone: dict[str, dict[str, Fate]]

    @classmethod
    def of(cls, seed: int, rates: Mapping[str, float], labours: int, fates: Mapping[str, Sequence[Fate]]) -> "Report":
        names = [NOTHING, *MISFORTUNES]
        hits = Counter(name for met in schedule(seed, labours, rates)[len(names) :] for name in met)
        drawn = {design: Counter(all_[len(names) :]) for design, all_ in fates.items()}
        return cls(
            seed,
            labours,
            rates={name: rates.get(name, RATE) for name in MISFORTUNES},
            hits={name: hits[name] for name in MISFORTUNES},
            counts={design: {fate: counter[fate] for fate in MEANINGS} for design, counter in drawn.items()},
            alone={design: dict(zip(names, all_, strict=False)) for design, all_ in fates.items()},
        )

    @property
    def broken(self) -> list[Fate]:
        """What became of somebody in our design, and never may."""
        alone, counts = self.alone[Ours.name].values(), self.counts[Ours.name]
        return [fate for fate in MEANINGS if fate not in RIGHT and (fate in alone or counts[fate])]

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in (*self.__slots__, "broken")}


def _segments(counts: Mapping[Fate, int], width: int) -> Iterator[tuple[Fate, int, int, int]]:
    """Each fate that occurs, its number, and where its part of the bar begins and ends."""
    total, before = sum(counts.values()), 0
    for fate, number in counts.items():
        if number:
            yield fate, number, round(before * width / total), round((before + number) * width / total)
            before += number


# In the terminal

_CELLS = 50
_INK = {
    Fate.ONCE: ("█", "green"),
    Fate.NONE: ("·", "dim"),
    Fate.LOST: ("x", "red"),
    Fate.DUPLICATED: ("▒", "yellow"),
    Fate.PHANTOM: ("◆", "magenta"),
}


def shown(report: Report) -> Group:
    bars = Table(box=None, pad_edge=False, show_header=False)
    for number, (name, counts) in enumerate(report.counts.items(), 1):
        bar, words = Text(), Text()
        for fate, count, start, end in _segments(counts, _CELLS):
            mark, style = _INK[fate]
            bar.append(mark * (end - start), style)
            words.append(f"{count} {fate}  ", "" if fate in RIGHT else style)
        bars.add_row(f"{number} {name}", bar)
        bars.add_row("", words)
    legend = [Text.assemble((mark * 3, style), f" {MEANINGS[fate]}") for fate, (mark, style) in _INK.items()]
    columns = ("alone", "hits", *map(str, range(1, 1 + len(report.alone))))
    alone = Table(*columns, box=None, padding=(0, 1, 0, 0))
    for name in (NOTHING, *MISFORTUNES):
        fates = [design[name] for design in report.alone.values()]
        alone.add_row(
            name, str(report.hits.get(name, "")), *(Text(fate, "" if fate in RIGHT else "red") for fate in fates)
        )
    title = f"{report.labours} labours, one person each, seed {report.seed}"
    return Group("", title, "", bars, "", *legend, "", alone)


# In the documentation


def section(report: Report) -> str:
    """No dates and no times, so that a second run changes nothing."""
    names = list(report.counts)
    unusual = ", ".join(f"{name} {rate:g}" for name, rate in report.rates.items() if rate != RATE)
    rows = [
        "![Our design told everybody once; every other one lost, doubled or invented texts.](images/quest.svg)",
        "",
        f"{report.labours} labours with one person each, seed {report.seed}. Each misfortune hits a labour with a probability of",
        f"{RATE:g}{', except ' + unusual if unusual else ''}, whatever else hits it.",
        "",
        f"| design | {' | '.join(MEANINGS)} |",
        "|---|" + "--:|" * len(MEANINGS),
        *(f"| {name} | {' | '.join(map(str, counts.values()))} |" for name, counts in report.counts.items()),
        "",
        "And this became of a labour that met one misfortune and no other; *hits* is how many of the labours above met it:",
        "",
        f"| misfortune | hits | {' | '.join(names)} |",
        "|---|--:|" + "---|" * len(names),
    ]
    for misfortune in (NOTHING, *MISFORTUNES):
        fates = (report.alone[name][misfortune] for name in names)
        cells = (fate if fate in RIGHT else f"**{fate}**" for fate in fates)
        rows.append(f"| {misfortune} | {report.hits.get(misfortune, '')} | {' | '.join(cells)} |")
    return "\n".join(rows)


_LEFT, _WIDTH, _TOP, _STEP, _HEIGHT = 180, 560, 100, 40, 26
_COLOURS = {  # in light and in dark mode
    "page": ("#ffffff", "#0d1117"),
    "ink": ("#1f2328", "#e6edf3"),
    Fate.ONCE: ("#1a7f64", "#2f9e7f"),
    Fate.NONE: ("#818b98", "#8b949e"),
    Fate.LOST: ("#c0392b", "#ff7b72"),
    Fate.DUPLICATED: ("#b26a00", "#e3a13a"),
    Fate.PHANTOM: ("#7a3fb3", "#c297ff"),
}
_PATTERNS = {
    Fate.ONCE: '<rect width="8" height="8" class="fill"/>',
    Fate.NONE: '<circle cx="4" cy="4" r="1" class="fill"/>',
    Fate.LOST: '<path d="M0 0 8 8M8 0 0 8" class="line"/>',
    Fate.DUPLICATED: '<path d="M2 0V8M6 0V8" class="line"/>',
    Fate.PHANTOM: '<path d="M4 0 8 4 4 8 0 4Z" class="fill"/>',
}
_LEGEND = {
    Fate.ONCE: (80, 0),
    Fate.NONE: (80, 1),
    Fate.LOST: (410, 0),
    Fate.DUPLICATED: (410, 1),
    Fate.PHANTOM: (410, 2),
}


def svg(counts: Mapping[str, Mapping[Fate, int]]) -> str:
    """The same numbers give the same file, to the byte."""
    labours, height = sum(next(iter(counts.values())).values()), _TOP + _STEP * len(counts)
    said = [f"{name}: " + ", ".join(f"{n} {fate}" for fate, n in fates.items() if n) for name, fates in counts.items()]
    patterns = "\n".join(
        f'<pattern id="{fate}" class="{fate}" width="8" height="8" patternUnits="userSpaceOnUse">{shape}</pattern>'
        for fate, shape in _PATTERNS.items()
    )
    legend = "\n".join(
        _box(fate, x, 8 + 26 * y, 28, 16) + f'<text x="{x + 36}" y="{21 + 26 * y}">{MEANINGS[fate]}</text>'
        for fate, (x, y) in _LEGEND.items()
    )
    rows = "\n".join(_row(name, fates, _TOP + _STEP * place) for place, (name, fates) in enumerate(counts.items()))
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 {height}" role="img" aria-labelledby="title desc">
<title id="title">What became of {labours} labours in each design, under the same misfortunes</title>
<desc id="desc">{escape(". ".join(said))}.</desc>
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


def _row(name: str, fates: Mapping[Fate, int], y: int) -> str:
    middle = y + _HEIGHT // 2 + 5
    parts = [f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>']
    for fate, number, start, end in _segments(fates, _WIDTH):
        centre = _LEFT + (start + end) / 2
        parts.append(_box(fate, _LEFT + start, y, end - start, _HEIGHT))
        parts.append(f'<text x="{centre:g}" y="{middle}" text-anchor="middle" class="number">{number}</text>')
    return "\n".join(parts)


def _box(fate: Fate, x: int, y: int, width: int, height: int) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="url(#{fate})" class="{fate} edge"/>'


def _style() -> str:
    light, dark = (" ".join(f"--{name}: {shade[mode]};" for name, shade in _COLOURS.items()) for mode in (0, 1))
    return "\n".join(
        [
            f"svg {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
            *(f".{fate} {{ --own: var(--{fate}) }}" for fate in MEANINGS),
            ".fill { fill: var(--own) } .line { stroke: var(--own); stroke-width: 2 } .edge { stroke: var(--own) }",
            "text { font: 14px system-ui, sans-serif; fill: var(--ink) }",
            ".number { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px }",
        ]
    )
