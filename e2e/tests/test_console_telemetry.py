"""The waterfall and the metrics of the console, as a person sees them."""

import re
from itertools import pairwise

from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import expect

from e2e.support.console_screen import Screen, box, is_in_window


def test_the_waterfall_shows_each_step_of_the_event_where_its_time_says(screen: Screen) -> None:
    screen.plan("Ken")
    screen.press("Begin", "The labour has begun.")
    expect(screen.phone("Ken").locator(".body")).to_contain_text(["Ada is in labour."])
    event = screen.page.locator("#events button", has_text="begun").first
    event.click()

    rows = screen.page.locator(".spans > li")
    expect(rows.filter(has_text="process labour").first).to_be_visible()
    steps = [
        "create labour.begun",
        "publish labour.begun",
        "process notification",
        "send sms",
        "publish notification.sent",
    ]
    bars = [box(screen.page.locator(f"[data-span='{name}'] .bar").first) for name in steps]
    for earlier, later in pairwise(bars):
        assert earlier["x"] < later["x"], "a later step begins further to the right"
        assert earlier["y"] < later["y"], "and further below"
    panel = screen.page.locator("#panel")
    assert is_in_window(panel)
    assert box(panel)["x"] >= box(event)["x"] + box(event)["width"], "beside what was clicked, not over it"
    row = rows.filter(has_text="send sms").first
    row.locator("summary").click()
    expect(row).to_contain_text("fern.sms.outcomeAccepted")
    expect(row).to_contain_text("notification-dispatcher (")
    found = Axe().run(screen.page)
    assert found.violations_count == 0, found.generate_report()


def test_the_metrics_of_the_last_minutes_are_drawn_with_their_values(screen: Screen) -> None:
    screen.plan("Ken")
    screen.press("Begin", "The labour has begun.")

    for name in ("handled", "sms", "p50"):
        line = screen.page.locator(f"[data-line='{name}']")
        expect(line.locator("b")).to_have_text(re.compile(r"\d"))
        expect(line.locator("path")).to_have_attribute("d", re.compile("^M"))
