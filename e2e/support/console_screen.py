"""The console in a real browser, for tests and for the pictures in the documentation."""

import random
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright

from e2e.support.waiting import PATIENCE, until

TIMEOUT = 1000 * PATIENCE  # milliseconds
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = ["no-sandbox", "disable-gpu", "disable-background-networking", "disable-component-update", "disable-sync"]
DESKTOP, PHONE = {"width": 1280, "height": 1400}, {"width": 390, "height": 844}

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

    def tile(self, name: str, lane: str = "there") -> Locator:
        return self.page.locator(f"#{lane} .tile", has=self.page.get_by_role("heading", name=name, exact=True))

    def phone(self, name: str) -> Locator:
        return self.page.locator(".phone", has=self.page.get_by_text(name, exact=True))

    def plan(self, *people: str) -> None:
        """Plan a new labour of Ada with these subscribers, each with a number that has not been used."""
        phase = self.page.locator("#phase")
        expect(phase).not_to_have_text("…")
        if phase.inner_text() == "planned":
            self.press("Begin", "has begun")
        if phase.inner_text() != "complete":
            self.press("Complete", "The baby is here")
        self.press("Plan", "Ada plans her labour")
        for name in people:
            self.page.get_by_role("textbox", name="Name").fill(name)
            self.page.get_by_role("textbox", name="Phone").fill(next(_phones))
            self.press("Subscribe", f"{name} is on the list")
        expect(self.page.locator("#people li")).to_have_count(len(people))

    def account(self) -> dict[str, int]:
        """The numbers of the account at the bottom of the page, by their names."""
        terms = self.page.locator("#equations .equation dd > span").all_inner_texts()
        rest = self.page.locator("#equations .rest .mark").all_inner_texts()
        numbers = {name: int(number) for number, name in (term.split("\n") for term in terms)}
        return numbers | {words.split(" ", 2)[2]: int(words.split(" ", 2)[1]) for words in rest}

    def seq(self) -> int:
        return int(self.page.evaluate("document.documentElement.dataset.seq ?? 0"))

    def until_balanced(self) -> None:
        """Wait until every event was published and claimed, and every message sent."""
        equal = (("committed", "published"), ("wanted", "claimed"), ("effects", "sent"), ("sent", "SMS"))

        def is_balanced(account: dict[str, int]) -> bool:
            unfinished = account["on the way"] or account["all accounted for"]
            return not unfinished and all(account[one] == account[other] for one, other in equal)

        until(self.account, is_balanced, what="the account is balanced")


@contextmanager
def open_screen(browser: Browser, url: str, **options: Any) -> Iterator[Screen]:
    """Fails if the page has an error, or sends a request to any other address."""
    context = browser.new_context(**{"viewport": DESKTOP, "color_scheme": "light", **options})
    context.set_default_timeout(TIMEOUT)
    expect.set_options(timeout=TIMEOUT)
    page, errors, requested = context.new_page(), list[str](), set[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: requested.add("/".join(request.url.split("/")[:3])))
    page.goto(url)
    yield Screen(page)
    context.close()
    assert errors == []
    assert requested <= {url}
