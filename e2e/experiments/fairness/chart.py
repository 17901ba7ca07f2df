"""The chart of `fern fairness`: how long the texts of other labours wait, as a bar for each design.

Every bar has its number, and the designs differ in pattern as well as in colour. The SVG follows the reader's light or dark mode.
"""

from collections.abc import Mapping
from xml.sax.saxutils import escape

_LEFT, _RIGHT, _WIDTH, _STEP, _HEIGHT, _TITLE = 170, 690, 760, 26, 16, 30
_STYLE = """\
svg { --page: #ffffff; --ink: #1f2328; --ours: #1a7f64; --other: #818b98 }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --ink: #e6edf3; --ours: #2f9e7f; --other: #8b949e } }
text { font: 13px system-ui, sans-serif; fill: var(--ink) } .kind { font-weight: 600 }
.number { font-weight: 600 } .ours { fill: var(--ours) } .other { fill: none; stroke: var(--other); stroke-width: 2 }
.axis { stroke: var(--ink); opacity: .4 }"""


def svg(waits: Mapping[str, Mapping[str, float]], ours: str) -> str:
    """`waits` has seconds by kind of text and design. The same seconds give the same file."""
    most = max(seconds for designs in waits.values() for seconds in designs.values()) or 1.0
    parts, y = list[str](), 10
    for kind, designs in waits.items():
        parts.append(f'<text x="10" y="{y + 16}" class="kind">{escape(kind)}</text>')
        y += _TITLE
        for design, seconds in designs.items():
            width, middle = (_RIGHT - _LEFT) * seconds / most, y + _HEIGHT - 3
            style = "ours" if design == ours else "other"
            parts += [
                f'<text x="{_LEFT - 10}" y="{middle}" text-anchor="end">{escape(design)}</text>',
                f'<rect x="{_LEFT}" y="{y}" width="{width:.1f}" height="{_HEIGHT}" class="{style}"/>',
                f'<text x="{_LEFT + width + 6:.1f}" y="{middle}" class="number">{seconds:.1f} s</text>',
            ]
            y += _STEP
    described = ". ".join(
        f"{kind}: " + ", ".join(f"{seconds:.1f} seconds with {design}" for design, seconds in designs.items())
        for kind, designs in waits.items()
    )
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {y + 10}" role="img" aria-labelledby="title desc">
<title id="title">How long texts wait while another labour has many</title>
<desc id="desc">{escape(described)}.</desc>
<style>
{_STYLE}
</style>
<line x1="{_LEFT}" y1="10" x2="{_LEFT}" y2="{y}" class="axis"/>
{chr(10).join(parts)}
</svg>
"""
