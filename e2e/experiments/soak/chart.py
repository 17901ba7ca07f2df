"""The chart of `fern soak`: a panel for each measure, over the time of the run. A panel has a line for each process.

The SVG follows the reader's light or dark mode, and says in words what it shows.
"""

from collections.abc import Sequence
from xml.sax.saxutils import escape

from e2e.experiments.soak.growth import MEASURES, Samples

_WIDTH, _HEIGHT, _GAP, _LEFT, _TITLE = 360, 110, 20, 10, 24
_POINTS = 150  # of a line; more samples are thinned out
_STYLE = """\
svg { --page: #ffffff; --ink: #1f2328; --line: #1a7f64 }
@media (prefers-color-scheme: dark) { svg { --page: #0d1117; --ink: #e6edf3; --line: #2f9e7f } }
text { font: 13px system-ui, sans-serif; fill: var(--ink) } .title { font-weight: 600 }
polyline { fill: none; stroke: var(--line); stroke-width: 1.5; stroke-opacity: .8 }
.axis { stroke: var(--ink); opacity: .4 }"""


def svg(times: Sequence[float], samples: Samples) -> str:
    """The chart as SVG. The same samples give the same file."""
    panels, described = list[str](), list[str]()
    for number, measure in enumerate(MEASURES):
        x = _LEFT + number % 2 * (_WIDTH + _GAP)
        y = 10 + number // 2 * (_HEIGHT + _TITLE + _GAP)
        panel, words = _panel(measure, times, samples, x, y)
        panels.append(panel)
        described.append(words)
    rows = (len(MEASURES) + 1) // 2
    width, height = 2 * _WIDTH + _GAP + 2 * _LEFT, 10 + rows * (_HEIGHT + _TITLE + _GAP)
    minutes = (times[-1] if times else 0) / 60
    return f"""\
<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" role="img" aria-labelledby="title desc">
<title id="title">What a running system uses, over {minutes:.1f} minutes</title>
<desc id="desc">{escape(". ".join(described))}.</desc>
<style>
{_STYLE}
</style>
{chr(10).join(panels)}
</svg>
"""


def _panel(name: str, times: Sequence[float], samples: Samples, x: int, y: int) -> tuple[str, str]:
    measure, series = MEASURES[name], sorted({key for sample in samples for key in sample if _is_of(key, name)})
    values = [sample[key] for sample in samples for key in sample if _is_of(key, name)]
    most, end = max([*values, 1e-9]), max([*times, 1e-9])
    base = y + _TITLE + _HEIGHT
    lines = []
    for key in series:
        points = [(at, sample[key]) for at, sample in zip(times, samples, strict=True) if key in sample]
        thinned = points[:: max(len(points) // _POINTS, 1)]
        places = " ".join(f"{x + at / end * _WIDTH:.1f},{base - value / most * _HEIGHT:.1f}" for at, value in thinned)
        lines.append(f'<polyline points="{places}"/>')
    most_words = f"{most:,.{0 if most >= 10 else 2}f} {measure.unit}".strip()
    title = (
        f'<text x="{x}" y="{y + 14}"><tspan class="title">{escape(measure.title)}</tspan>, up to {most_words}</text>'
    )
    axis = f'<line x1="{x}" y1="{base}" x2="{x + _WIDTH}" y2="{base}" class="axis"/>'
    return "\n".join([title, axis, *lines]), f"{measure.title}: at most {most_words}"


def _is_of(series: str, measure: str) -> bool:
    return series.partition("/")[0] == measure
