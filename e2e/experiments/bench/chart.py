"""The chart of `fern bench`: for each stage how many times as fast as the articles' design ours and the limits are.

The axis is logarithmic, since the ratios reach from less than one to more than a hundred. Every bar has its number, and ours has
a pattern of its own, so that colour is never the only difference. The SVG follows the reader's light or dark mode.
"""

import math
from collections.abc import Sequence
from itertools import groupby
from xml.sax.saxutils import escape

from e2e.experiments.bench.runner import Figure

BASELINE = "articles"

_LEFT, _RIGHT, _WIDTH, _STEP, _HEIGHT, _TITLE = 330, 730, 760, 26, 16, 30
_LEAST = 0.2  # where the axis begins
_STYLE = """\
svg { --page: #ffffff; --ink: #1f2328; --ours: #1a7f64; --other: #818b98; --goal: #c0392b }
@media (prefers-color-scheme: dark) {
svg { --page: #0d1117; --ink: #e6edf3; --ours: #2f9e7f; --other: #8b949e; --goal: #ff7b72 } }
text { font: 13px system-ui, sans-serif; fill: var(--ink) } .stage { font-weight: 600 }
.number { font-weight: 600; paint-order: stroke; stroke: var(--page); stroke-width: 4px }
.ours { fill: var(--ours) } .other { fill: none; stroke: var(--other); stroke-width: 2 }
.goal { stroke: var(--goal); stroke-width: 3; stroke-dasharray: 4 2 } .axis { stroke: var(--ink); opacity: .4 }"""


def compared(figures: Sequence[Figure]) -> list[Figure]:
    """The cases that are compared with the articles' design."""
    return [one for one in figures if one.case.against == BASELINE]


def svg(figures: Sequence[Figure]) -> str:
    """The chart as SVG. The same figures give the same file."""
    shown = compared(figures)
    most = max([10.0, *(one.ratio or 0 for one in shown)]) * 1.6

    def x(ratio: float) -> float:
        share = math.log(max(ratio, _LEAST) / _LEAST) / math.log(most / _LEAST)
        return round(_LEFT + (_RIGHT - _LEFT) * share, 1)

    parts, y = list[str](), 10
    for stage, cases in groupby(shown, key=lambda one: one.stage):
        parts.append(f'<text x="10" y="{y + 16}" class="stage">{escape(stage)}</text>')
        y += _TITLE
        for one in cases:
            parts.append(_row(one, x(1), x(one.ratio or 0), y, x(one.case.goal) if one.case.goal else None))
            y += _STEP
    described = ". ".join(f"{one.stage}, {one.case.title}: {one.ratio:.2f} times" for one in shown)
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 30}" role="img" aria-labelledby="title desc">
<title id="title">How many times as fast as the articles' design, on a logarithmic axis</title>
<desc id="desc">{escape(described)}.</desc>
<style>
{_STYLE}
</style>
<line x1="{x(1)}" y1="10" x2="{x(1)}" y2="{y}" class="axis"/>
{chr(10).join(parts)}
<text x="{x(1)}" y="{y + 18}" text-anchor="middle">1: the articles' design</text>
</svg>
"""


def _row(figure: Figure, one: float, end: float, y: int, goal: float | None) -> str:
    kind, middle = "ours" if figure.name == "ours" else "other", y + _HEIGHT - 3
    lines = [
        f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(figure.case.title)}</text>',
        f'<rect x="{min(one, end)}" y="{y}" width="{abs(end - one):.1f}" height="{_HEIGHT}" class="{kind}"/>',
        f'<text x="{max(one, end) + 6}" y="{middle}" class="number">{figure.ratio:.2f}</text>',
    ]
    if goal is not None:
        lines.append(f'<line x1="{goal}" y1="{y - 4}" x2="{goal}" y2="{y + _HEIGHT + 4}" class="goal"/>')
    return "\n".join(lines)
