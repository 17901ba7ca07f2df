"""The console in a real browser, for tests and for the pictures in the documentation."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from e2e.support.waiting import PATIENCE, until

TIMEOUT = 1000 * PATIENCE  # milliseconds
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync"]
DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}

_phones = iter(random.sample([f"+131255501{line:02}" for line in range(100)], 100))  # reserved for fiction


@contextmanager
def chromium() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=[f"--{flag}" for flag in FLAGS])
        yield browser
        browser.close()


class Screen:
    """The console as a user operates it: everything is found by its label."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said, self.verdict = page.locator("#said li"), page.locator("#verdict")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def press(self, name: str, says: str) -> None:
        """Press a button and wait for the message that it causes, above all others."""
        self.button(name).click()
        expect(self.said.first).to_contain_text(says)

    def switch(self, name: str) -> Locator:
        return self.page.get_by_role("switch", name=name, exact=True)

    def station(self, name: str) -> Locator:
        return self.page.locator(f"[data-station='{name}']")

    def process(self, name: str) -> Locator:
        return self.page.locator(f"[data-process='{name}']")

    def tokens(self, kind: str) -> Locator:
        return self.page.locator(f".token.{kind}")

    def record_tokens(self) -> None:
        """Keep every state of every token from now on: some are short, and a test must not depend on when it looks."""
        self.page.evaluate(
            """() => {
              const record = window.record = new Set(), layer = document.getElementById('tokens');
              new MutationObserver(() => layer.childNodes.forEach(({ className, textContent, dataset: { at, state } }) => {
                record.add([className.replace('token ', ''), textContent, at, state].join(', '));
              })).observe(layer, { subtree: true, childList: true, attributes: true, characterData: true });
            }"""
        )

    def until_token(self, kind: str, name: str, station: str, state: str) -> None:
        """Wait until a token has been there."""
        wanted = f"{kind}, {name}, {station}, {state}"
        until(lambda: self.page.evaluate("[...window.record]"), lambda seen: wanted in seen, what=wanted)

    def phone(self, name: str) -> Locator:
        return self.page.locator(".phone", has=self.page.get_by_text(name, exact=True))

    def told(self, name: str) -> Locator:
        return self.page.locator("#people li", has_text=name)

    def faults(self, target: str) -> None:
        """Open the panel with the faults of `bus` or `sms`."""
        self.page.locator(f"#break-{target}").click()
        expect(self.page.locator("#panel .faults li").first).to_be_visible()

    def duplicate(self, topic: str) -> None:
        """Let the bus deliver every message of a topic twice."""
        self.faults("bus")
        self.page.locator("#panel .faults li", has_text="duplicate").get_by_label("topic").fill(topic)
        self.switch("duplicate").click()
        expect(self.said.first).to_contain_text("duplicate is on")
        self.button("Close").click()

    def plan(self, *people: str) -> None:
        """Plan a new labour of Ada with these subscribers, each with a number that has not been used."""
        phase = self.page.locator("#phase")
        expect(phase).not_to_have_text("…")
        if phase.inner_text() == "planned":
            self.press("Begin", "has begun")
        if phase.inner_text() not in ("complete", "plan one"):
            self.press("Complete", "The baby is here")
        self.press("Plan a labour", "Ada plans her labour")
        for name in people:
            self.page.get_by_role("textbox", name="Name").fill(name)
            self.page.get_by_role("textbox", name="Phone").fill(next(_phones))
            self.press("Add a person", f"{name} is on the list")
        expect(self.page.locator("#people li")).to_have_count(len(people))

    def account(self) -> dict[str, int]:
        """The numbers of the account, by their names."""
        terms = self.page.locator("#equations .equation dd > span").all_inner_texts()
        rest = self.page.locator("#equations .rest .mark").all_inner_texts()
        numbers = {name: int(number) for number, name in (term.split("\n") for term in terms)}
        return numbers | {words.split(" ", 2)[2]: int(words.split(" ", 2)[1]) for words in rest}

    def seq(self) -> int:
        return int(self.page.evaluate("document.documentElement.dataset.seq ?? 0"))

    def until_balanced(self) -> None:
        """Wait until every event was published and claimed or given up, every message sent or refused, and all of it shown.

        Other tests on the same system may have given up events and have had messages refused.
        """

        def is_balanced(account: dict[str, int]) -> bool:
            is_shown = self.page.evaluate("document.documentElement.dataset.film") == "idle"
            if not is_shown or not account or account["on the way"] or account["all accounted for"]:
                return False
            given_up, refused = account.get("discarded", 0), account.get("refused", 0)
            unpublished, unclaimed = (
                account["committed"] - account["published"],
                account["wanted"] - account["claimed"],
            )
            return (
                0 <= unpublished <= given_up
                and 0 <= unclaimed <= given_up
                and account["effects"] == account["sent"] + refused
                and account["sent"] == account["SMS"]
            )

        until(self.account, is_balanced, what="the account is balanced")


@contextmanager
def open_screen(
    browser: Browser, url: str, *, slow: bool = False, by_hand: bool = False, **options: Any
) -> Iterator[Screen]:
    """Open the console, with slow motion on or off. With `by_hand` the page's clock stands still, unless the caller moves it.
    Fails if the page has an error, or sends a request to any other address.
    """
    context = browser.new_context(**{"viewport": DESKTOP, "color_scheme": "light", **options})
    context.add_init_script(f"localStorage.setItem('slow', '{'yes' if slow else 'no'}')")
    context.set_default_timeout(TIMEOUT)
    expect.set_options(timeout=TIMEOUT)
    page, errors, requested = context.new_page(), list[str](), set[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requested.add("/".join(request.url.split("/")[:3])))
    if by_hand:
        page.clock.install()
        page.clock.pause_at(datetime.now(UTC) + timedelta(hours=1))
    try:
        page.goto(url)
        yield Screen(page)
    finally:
        context.close()  # or the page of a test that failed would go on reading the console
    assert errors == []
    assert requested <= {url}


def box(locator: Locator) -> Any:
    found = locator.bounding_box()
    assert found is not None
    return found


def is_in_window(locator: Locator) -> bool:
    window, inner = locator.page.viewport_size, box(locator)
    assert window is not None
    return bool(inner["y"] >= 0 and inner["y"] + inner["height"] <= window["height"])


def is_inside(token: Locator, station: Locator) -> bool:
    inner, outer = box(token), box(station)
    middle = inner["x"] + inner["width"] / 2
    return bool(outer["x"] <= middle <= outer["x"] + outer["width"])
