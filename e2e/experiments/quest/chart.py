"""A bar for each design, divided by outcome.

Every outcome has its own pattern and its number, so that colour is never the only difference. The SVG follows the reader's light
or dark mode, and has a description in words.
"""

from collections.abc import Collection, Iterator, Mapping
from typing import NamedTuple, TypeVar
from xml.sax.saxutils import escape


class OutcomeStyle(NamedTuple):
    """How an outcome is drawn; the colours are those of light and of dark mode."""

    meaning: str
    colours: tuple[str, str]
    pattern: str


CROSSES, LINES, RHOMBS = (
    f'<path d="{path}" class="{kind}"/>'
    for path, kind in (("M0 0 8 8M8 0 0 8", "line"), ("M2 0V8M6 0V8", "line"), ("M4 0 8 4 4 8 0 4Z", "fill"))
)
FULL, DOTS = '<rect width="8" height="8" class="fill"/>', '<circle cx="4" cy="4" r="1" class="fill"/>'
GREEN, GREY, RED = ("#1a7f64", "#2f9e7f"), ("#818b98", "#8b949e"), ("#c0392b", "#ff7b72")
AMBER, PURPLE = ("#b26a00", "#e3a13a"), ("#7a3fb3", "#c297ff")

Outcome = TypeVar("Outcome", bound=str)  # an outcome

_LEFT, _WIDTH, _TOP, _STEP, _HEIGHT = 180, 560, 100, 40, 26
_PAGE, _INK = ("#ffffff", "#0d1117"), ("#1f2328", "#e6edf3")  # colours in light and in dark mode


def svg(
    counts: Mapping[str, Mapping[Outcome, int]], styles: Mapping[Outcome, OutcomeStyle], right: Collection[Outcome]
) -> str:
    """`counts` are of each design, by name. The same numbers give the same file, to the byte."""
    labours, height = sum(next(iter(counts.values())).values()), _TOP + _STEP * len(counts)
    described = [f"{name}: {in_words(outcomes)}" for name, outcomes in counts.items()]
    patterns = "\n".join(
        f'<pattern id="{name}" class="{name}" width="8" height="8" patternUnits="userSpaceOnUse">{style.pattern}</pattern>'
        for name, style in styles.items()
    )
    places = [(80, right), (410, [outcome for outcome in styles if outcome not in right])]
    legend = "\n".join(
        _box(outcome, x, 8 + 26 * y, 28, 16) + f'<text x="{x + 36}" y="{21 + 26 * y}">{styles[outcome].meaning}</text>'
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
{_css(styles)}
</style>
<defs>
{patterns}
</defs>
{legend}
{rows}
</svg>
"""


def in_words(outcomes: Mapping[Outcome, int]) -> str:
    return ", ".join(f"{number} {outcome.replace('_', ' ')}" for outcome, number in outcomes.items() if number)


def _row(name: str, outcomes: Mapping[Outcome, int], y: int) -> str:
    middle = y + _HEIGHT // 2 + 5
    parts = [f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(name)}</text>']
    for outcome, number, start, end in _segments(outcomes, _WIDTH):
        centre = _LEFT + (start + end) / 2
        parts.append(_box(outcome, _LEFT + start, y, end - start, _HEIGHT))
        parts.append(f'<text x="{centre:g}" y="{middle}" text-anchor="middle" class="number">{number}</text>')
    return "\n".join(parts)


def _box(outcome: str, x: int, y: int, width: int, height: int) -> str:
    return f'<rect x="{x}" y="{y}" width="{width}" height="{height}" fill="url(#{outcome})" class="{outcome} edge"/>'


def _css(styles: Mapping[Outcome, OutcomeStyle]) -> str:
    colours: dict[str, tuple[str, str]] = {
        "page": _PAGE,
        "ink": _INK,
        **{outcome: style.colours for outcome, style in styles.items()},
    }
    light, dark = (" ".join(f"--{name}: {shade[mode]};" for name, shade in colours.items()) for mode in (0, 1))
    return "\n".join(
        [
            f"svg {{ {light} }}",
            f"@media (prefers-color-scheme: dark) {{ svg {{ {dark} }} }}",
            *(f".{outcome} {{ --own: var(--{outcome}) }}" for outcome in styles),
            ".fill { fill: var(--own) } .line { stroke: var(--own); stroke-width: 2 } .edge { stroke: var(--own) }",
            "text { font: 14px system-ui, sans-serif; fill: var(--ink) }",
            ".number { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px }",
        ]
    )


def _segments(counts: Mapping[Outcome, int], width: int) -> Iterator[tuple[Outcome, int, int, int]]:
    """Each outcome that occurs, its number, and where its part of the bar begins and ends."""
    total, before = sum(counts.values()), 0
    for outcome, number in counts.items():
        if number:
            yield outcome, number, round(before * width / total), round((before + number) * width / total)
            before += number
