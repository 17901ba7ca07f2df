"""An event travels, as an animated SVG: the stations and the path of every token, as the console's page has drawn them."""

from collections.abc import Iterable, Iterator, Sequence
from html import escape
from itertools import groupby
from typing import Any

from e2e.support.console_film import FRAME, Look
from e2e.support.console_screen import Screen

LEAD, REST = 600, 1800  # milliseconds before the first token, and after the last
STILL = 6  # frames
MARGIN = 8
STAGE = """() => {
  const grid = document.getElementById('grid'), { left, top, width } = grid.getBoundingClientRect();
  const place = (node) => { const box = node.getBoundingClientRect(); return { x: box.left - left, y: box.top - top, width: box.width, height: box.height }; };
  const named = (node, name) => ({ ...place(node), name: (node.querySelector(name) ?? node).textContent });
  return {
    width,
    stations: [...document.querySelectorAll('.station')].map((node) => named(node, 'h3')),
    groups: [...document.querySelectorAll('.group')].map((node) => named(node, '*')),
    phones: [...document.querySelectorAll('.phone')].slice(0, 2).map((node) => named(node, 'b')),
    people: [...document.querySelectorAll('#people li')].map((node) => named(node, 'b')),
  };
}"""  # noqa: E501
STYLE = """
text { font: 600 12px system-ui, 'Segoe UI', sans-serif; fill: #1b2820; }
.ground { fill: #f2f5f0; } .box { fill: #fff; stroke: #cfd8cf; } .soft { font-weight: 400; fill: #55645a; }
.event rect { fill: #26734a; } .event text { fill: #fff; } .copy rect { fill: #e3f1e8; stroke: #26734a; }
.text rect, .bubble rect { fill: #fff; stroke: #26734a; } .status rect { fill: #e8eefb; stroke: #3b5fb0; }
.duplicate rect { fill: #fff; stroke: #55645a; stroke-dasharray: 4 3; } .duplicate text { fill: #55645a; }
.doubt rect { fill: #fff2d3; stroke: #7a5200; }
@media (prefers-color-scheme: dark) {
  text { fill: #e8efea; } .soft { fill: #9fb1a5; } .ground { fill: #0e1411; } .box { fill: #161e1a; stroke: #29352e; }
  .event rect { fill: #6cc490; } .event text { fill: #0b1a11; } .copy rect { fill: #1a3125; stroke: #6cc490; }
  .text rect, .bubble rect { fill: #0e1411; stroke: #6cc490; } .status rect { fill: #1b2640; stroke: #8fb0f5; }
  .duplicate rect { fill: #161e1a; stroke: #9fb1a5; } .duplicate text { fill: #9fb1a5; }
}
"""


def stage_of(screen: Screen) -> dict[str, Any]:
    found: dict[str, Any] = screen.page.evaluate(STAGE)
    return found


def animate(stage: dict[str, Any], looks: Sequence[Look]) -> str:
    """The SVG. It starts again when it has ended. A reader who prefers reduced motion sees its end only."""
    looks = _without_waits(looks)
    length = LEAD + len(looks) * FRAME + REST
    height = max(box["y"] + box["height"] for box in stage["stations"] + stage["phones"])
    size = f"{-MARGIN} {-MARGIN} {stage['width'] + 2 * MARGIN:.0f} {height + 2 * MARGIN:.0f}"
    parts = [*_still(stage), *_texts(stage, looks, length), *_tokens(looks, length)]
    rules = f"<style>{STYLE}@media (prefers-reduced-motion: reduce) {{ * {{ animation: none !important; }} }}</style>"
    title = "<title>An event travels from the client to two phones, and what became of it comes back</title>"
    return f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="{size}" role="img">{title}{rules}{"".join(parts)}</svg>\n'


def _without_waits(looks: Sequence[Look]) -> list[Look]:
    """Keep only the first of equal looks, in which nothing moves, and none from before the first token."""
    first = next(number for number, look in enumerate(looks) if look["tokens"])
    kept = list[Look]()
    for look in looks[max(first - 1, 0) :]:
        if len(kept) < STILL or any(one["tokens"] != look["tokens"] for one in kept[-STILL:]):
            kept.append(look)
    return kept


def _still(stage: dict[str, Any]) -> Iterator[str]:
    yield f'<rect class="ground" x="{-MARGIN}" y="{-MARGIN}" width="100%" height="100%"/>'
    for box in stage["stations"] + stage["phones"]:
        yield f'<rect class="box" rx="10" {_rect(box)}/>'
        yield f'<text x="{box["x"] + 8:.0f}" y="{box["y"] + 19:.0f}">{escape(box["name"])}</text>'
    for group in stage["groups"]:
        yield f'<text class="soft" x="{group["x"] + 4:.0f}" y="{group["y"] + 13:.0f}">{escape(group["name"])}</text>'
    for person in stage["people"]:
        yield f'<text x="{person["x"]:.0f}" y="{person["y"] + 15:.0f}">{escape(person["name"])}</text>'


def _texts(stage: dict[str, Any], looks: Sequence[Look], length: int) -> Iterator[str]:
    """What the phones show, and what each person was told, from the moment at which it appears."""
    before = set(looks[0]["texts"])
    fresh = list(dict.fromkeys(text for look in looks for text in look["texts"] if text not in before))
    for phone, body in zip(stage["phones"], fresh, strict=False):
        since = next(number for number, look in enumerate(looks) if body in look["texts"])
        lines = _wrapped(body, 30)
        words = "".join(
            f'<text class="soft" x="{phone["x"] + 18:.0f}" y="{phone["y"] + 46 + 16 * number:.0f}">{escape(line)}</text>'
            for number, line in enumerate(lines)
        )
        box = {"x": phone["x"] + 10, "y": phone["y"] + 28, "width": phone["width"] - 20, "height": 14 + 16 * len(lines)}
        yield _appearing("bubble", f'<rect rx="9" {_rect(box)}/>{words}', since, length)
    for place, person in enumerate(stage["people"]):
        since = next(number for number, look in enumerate(looks) if "✓" in look["told"][place])
        x = person["x"] + 8 * len(person["name"]) + 8
        yield _appearing(
            "told", f'<text class="soft" x="{x:.0f}" y="{person["y"] + 15:.0f}">begun ✓</text>', since, length
        )


def _appearing(kind: str, content: str, since: int, length: int) -> str:
    at = 100 * (LEAD + since * FRAME) / length
    name = f"s{since}{kind}"
    frames = f"@keyframes {name} {{ 0%, {at:.2f}% {{ opacity: 0 }} {at + 0.4:.2f}%, 100% {{ opacity: 1 }} }}"
    style = f"{frames} .{name} {{ animation: {name} {length}ms linear infinite }}"
    return f'<style>{style}</style><g class="{kind} {name}">{content}</g>'


def _tokens(looks: Sequence[Look], length: int) -> Iterator[str]:
    seen = [(token["id"], number, token) for number, look in enumerate(looks) for token in look["tokens"]]
    for place, (_, group) in enumerate(groupby(sorted(seen, key=lambda one: one[:2]), key=lambda one: one[0])):
        track = [(number, token) for _, number, token in group]
        token, width = track[0][1], max(token["width"] for _, token in track)
        stops = [(100 * (LEAD + number * FRAME) / length, one["x"], one["y"]) for number, one in track]
        frames = "".join(
            f"{at:.2f}% {{ transform: translate({x:.0f}px, {y:.0f}px); opacity: 1 }} " for at, x, y in _corners(stops)
        )
        (first, *begin), (last, *end) = stops[0], stops[-1]
        hidden = "{{ transform: translate({:.0f}px, {:.0f}px); opacity: 0 }}".format
        frames = f"0%, {first - 0.2:.2f}% {hidden(*begin)} {frames} {last + 0.4:.2f}%, 100% {hidden(*end)}"
        style = f"@keyframes t{place} {{ {frames} }} .t{place} {{ opacity: 0; animation: t{place} {length}ms linear infinite }}"
        shape = f'<rect x="{-width / 2:.0f}" y="-11" width="{width:.0f}" height="22" rx="11"/>'
        words = f'<text text-anchor="middle" y="4">{escape(token["name"])}</text>'
        yield f'<style>{style}</style><g class="{token["kind"]} t{place}">{shape}{words}</g>'


def _corners(stops: Sequence[tuple[float, float, float]]) -> Iterable[tuple[float, float, float]]:
    """The stops without those that lie on the line between their neighbours."""
    kept = [stops[0]]
    for place in range(1, len(stops) - 1):
        (start, *before), (now, *here), (end, *after) = kept[-1], stops[place], stops[place + 1]
        part = (now - start) / (end - start)
        if any(
            abs(one + (other - one) * part - is_at) > 0.6 for one, other, is_at in zip(before, after, here, strict=True)
        ):
            kept.append(stops[place])
    return [*kept, stops[-1]]


def _wrapped(text: str, width: int) -> list[str]:
    lines = [""]
    for word in text.split():
        if len(lines[-1]) + len(word) >= width:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return lines


def _rect(box: dict[str, float]) -> str:
    return " ".join(f'{name}="{box[name]:.0f}"' for name in ("x", "y", "width", "height"))
