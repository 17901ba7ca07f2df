"""The console's stage, frame by frame. The page's clock is moved by hand, so neither the machine's speed nor its load matters."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, expect

from e2e.support.console_screen import Screen, open_screen
from e2e.support.waiting import until

FRAME = 50  # milliseconds between two looks
LOOK = """() => {
  const { left, top } = document.getElementById('grid').getBoundingClientRect();
  const words = (selector) => [...document.querySelectorAll(selector)].map((node) => node.textContent);
  const stations = [...document.querySelectorAll('[data-slot]')].map((node) => {
    const box = node.getBoundingClientRect();
    return [node.dataset.slot.split(' ')[0], [box.left - left, box.right - left]];
  });
  return {
    stations: Object.fromEntries(stations),
    tokens: [...document.querySelectorAll('.token')].map((node) => {
      const box = node.getBoundingClientRect(), [, kind] = node.className.split(' ');
      const middle = { x: box.left - left + box.width / 2, y: box.top - top + box.height / 2, width: box.width };
      return { id: node.dataset.token, kind, name: node.textContent, at: node.dataset.at, ...middle };
    }),
    texts: words('.phone .body'),
    told: words('#people li'),
    film: document.documentElement.dataset.film,
  };
}"""

Look = dict[str, Any]


@contextmanager
def moved_by_hand(browser: Browser, url: str, *people: str, **options: Any) -> Iterator[Screen]:
    """The console with a planned labour and an empty stage. Its clock stands still, unless the caller moves it."""
    with open_screen(browser, url) as screen:
        screen.plan(*people)
        screen.until_balanced()
    with open_screen(browser, url, by_hand=True, **options) as screen:
        until(lambda: is_ready(look_at(screen)), what="the page shows the labour, and nothing moves")
        yield screen
        screen.button("Clear all faults").click()
        expect(screen.button("Clear all faults")).not_to_have_attribute("aria-busy", "true")


def is_ready(look: Look) -> bool:
    return bool(look["told"]) and not look["tokens"] and look["film"] == "idle"


def look_at(screen: Screen) -> Look:
    """The stage after one more frame."""
    screen.page.clock.run_for(FRAME)
    found: Look = screen.page.evaluate(LOOK)
    return found


def watch(screen: Screen, people: int) -> list[Look]:
    """Look after every frame, until the statuses of all texts have come back and the film has ended."""
    looks = list[Look]()

    def has_ended() -> bool:
        for _ in range(10):
            looks.append({**look_at(screen), "look": len(looks)})
        delivered = {token["name"] for one in looks for token in one["tokens"] if "✓✓" in token["name"]}
        return len(delivered) == people and looks[-1]["film"] == "idle"

    until(has_ended, what="everything has come back")
    return looks
