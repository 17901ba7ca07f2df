"""The console in a real browser: a labour clicked through, everything broken, and what a person then sees.

With FERN_WRITE_DOCS=1 the same tests take the pictures in docs/images.
"""

import asyncio
import os
import random
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import Browser, Locator, Page, expect, sync_playwright
from rich.console import Console as Terminal

from e2e.support.installation import Installation
from e2e.support.ports import free_port_base
from fern.console.server import create_app
from fern.console.watch import Board, Watch, draw_up
from fern.output import Progress
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.system import processes_now
from fern.settings import PROJECT_ROOT, Settings
from servicekit.web import serve

PATIENCE = 90_000  # milliseconds; only ever waited for when something is wrong
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
FLAGS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
]
NUMBERS = iter(random.sample([f"+131255501{tail:02}" for tail in range(100)], 100))  # kept free for fiction
DESKTOP, PHONE = {"width": 1280, "height": 1400}, {"width": 390, "height": 844}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("there is no Chromium here; on Debian: apt install chromium")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield browser
        browser.close()


class Screen:
    """The console as a person uses it: by what is written on it."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.said, self.verdict = page.locator("#said li"), page.locator("#verdict")

    def button(self, name: str) -> Locator:
        return self.page.get_by_role("button", name=name, exact=True)

    def press(self, name: str, says: str) -> None:
        """The answer is the newest, on top of the others."""
        self.button(name).click()
        expect(self.said.first).to_contain_text(says)

    def tile(self, name: str, lane: str = "there") -> Locator:
        return self.page.locator(f"#{lane} .tile", has=self.page.get_by_role("heading", name=name, exact=True))

    def phone(self, name: str) -> Locator:
        return self.page.locator(".phone", has=self.page.get_by_text(name, exact=True))

    def plan(self, *people: str) -> None:
        """A new labour of Ada's with these people in it, each with a number that has never had a text."""
        phase = self.page.locator("#phase")
        expect(phase).not_to_have_text("…")
        if phase.inner_text() == "planned":
            self.press("Begin", "has begun")
        if phase.inner_text() != "complete":
            self.press("Complete", "The baby is here")
        self.press("Plan", "Ada plans her labour")
        for name in people:
            self.page.get_by_role("textbox", name="Name").fill(name)
            self.page.get_by_role("textbox", name="Phone").fill(next(NUMBERS))
            self.press("Subscribe", f"{name} is on the list")
        expect(self.page.locator("#people li")).to_have_count(len(people))

    def account(self) -> dict[str, int]:
        terms = self.page.locator("#equations .equation dd > span").all_inner_texts()
        rest = self.page.locator("#equations .rest .mark").all_inner_texts()
        numbers = {name: int(number) for number, name in (term.split("\n") for term in terms)}
        return numbers | {words.split(" ", 2)[2]: int(words.split(" ", 2)[1]) for words in rest}

    def is_balanced(self) -> bool:
        a = self.account()
        return (
            a["committed"] == a["published"]
            and a["wanted"] == a["claimed"]
            and a["effects"] == a["sent"] == a["SMS"]
            and a["on the way"] == a["all accounted for"] == 0
        )

    def seq(self) -> int:
        return int(self.page.evaluate("document.documentElement.dataset.seq ?? 0"))

    def picture(self, name: str) -> None:
        """Of the page without the hint, for the docs."""
        if os.environ.get("FERN_WRITE_DOCS"):
            (folder := PROJECT_ROOT / "docs" / "images").mkdir(exist_ok=True)
            if (hide := self.button("Got it")).is_visible():
                hide.click()
            self.page.evaluate("scrollTo(0, 0)")
            self.page.screenshot(path=folder / f"{name}.png")


def eventually(screen: Screen, condition: Callable[[], bool], seconds: float = PATIENCE / 1000) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, f"not in time; the account is {screen.account()}"
        screen.page.wait_for_timeout(50)


@contextmanager
def open_screen(browser: Browser, url: str, **options: Any) -> Iterator[Screen]:
    """Fails if the page has an error of its own, or asks anybody else for anything."""
    context = browser.new_context(**{"viewport": DESKTOP, "color_scheme": "light", **options})
    context.set_default_timeout(PATIENCE)
    expect.set_options(timeout=PATIENCE)
    page, errors, asked = context.new_page(), list[str](), set[str]()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("request", lambda request: asked.add("/".join(request.url.split("/")[:3])))
    page.goto(url)
    yield Screen(page)
    context.close()
    assert errors == []
    assert asked <= {url}


@pytest.fixture
def screen(browser: Browser, installation: Installation) -> Iterator[Screen]:
    with open_screen(browser, installation.settings.url("console")) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        yield screen
        screen.button("Clear all faults").click()
        eventually(screen, lambda: all(row.health == "healthy" for row in processes_now(installation.settings)))


def test_everyone_is_told_once_and_every_stage_shows_it(screen: Screen) -> None:
    screen.plan("Barbara", "Radia")

    screen.press("Begin", "The labour has begun. 2 on the list, each to be told once.")
    expect(screen.page.locator(".phone[data-lit]", has_text="Barbara")).to_be_visible()
    expect(screen.phone("Radia").locator(".body")).to_contain_text(["Ada is in labour."])
    screen.press("Begin", "Refused: This labour has begun already.")
    screen.press("Start a contraction", "A contraction starts.")
    screen.press("End the contraction", "The contraction is over.")
    screen.press("Announce", "Announced. 2 on the list")
    screen.press("Complete twice, same key", "Second tap, same key: the same answer, replayed. No one is told twice.")
    expect(screen.said.nth(1)).to_contain_text("First tap: the baby is here!")

    expect(screen.page.locator("#told")).to_have_text("labour.completed: 2 of 2 told")
    for name in ("Barbara", "Radia"):
        texts = screen.phone(name).locator(".body")
        expect(texts).to_contain_text(["The baby is here!", "Nearly there!", "Ada is in labour."])
        expect(screen.page.locator("#people li", has_text=name)).to_have_text(f"{name}told 3 times")
    expect(screen.page.get_by_role("combobox", name="Event", exact=True)).to_contain_text("labour.completed")
    hops = screen.page.locator(".hops li")
    expect(hops.filter(has_text="SMS delivered")).to_have_count(2)
    expect(hops.first).to_contain_text(re.compile(r"\+0 ms.*request PUT .*/complete · idempotency key"))
    for name in ("Barbara", "Radia"):
        expect(hops.filter(has_text=f"SMS sent to {name}")).to_have_count(1)
    eventually(screen, screen.is_balanced)
    screen.picture("console-light")
    screen.press("Complete", "Refused: This labour is complete")


def test_it_adds_up_whatever_is_broken_on_the_way(screen: Screen, installation: Installation) -> None:
    screen.plan("Edsger", "Frances")
    eventually(screen, screen.is_balanced)
    before, pid = screen.account(), pid_of(installation, "notification-consumer")

    for fault in ("duplicate", "reply-lost"):
        screen.page.get_by_role("switch", name=fault, exact=True).click()
        expect(screen.said.first).to_contain_text(f"{fault} is on, 100% of the time.")
    expect(screen.verdict).to_have_text("◷ 2 faults on, on purpose")
    screen.press("Kill notification-consumer", f"Killed notification-consumer (pid {pid}); the supervisor starts it")
    with stopped(installation, "labour-relay"):
        screen.press("Begin", "The labour has begun.")
        outbox = screen.tile("Labour outbox")
        expect(outbox.locator(".figure")).to_contain_text(re.compile(r"1 waiting\s*✕ relay down"))
        expect(outbox.locator(".facts")).to_contain_text(re.compile(r"oldest \d"))
        screen.picture("console-broken")

    consumer = screen.tile("Topics").locator(".processes li", has_text="notification-consumer")
    expect(consumer.get_by_role("img", name=re.compile("restarted"))).to_be_visible()
    for name in ("Edsger", "Frances"):
        expect(screen.phone(name).locator(".body")).to_contain_text(["Ada is in labour."])
    eventually(screen, screen.is_balanced)
    assert screen.account()["SMS"] == before["SMS"] + 2
    eventually(screen, lambda: screen.account()["absorbed"] > before["absorbed"])
    screen.press("Clear all faults", "is off")
    for fault in ("duplicate", "reply-lost"):
        expect(screen.page.get_by_role("switch", name=fault, exact=True)).not_to_be_checked()
    expect(screen.verdict).to_have_text("✓ all is well")


def test_when_the_apis_die_old_news_looks_old_and_a_tap_waits_for_them(
    screen: Screen, installation: Installation
) -> None:
    screen.plan("Leslie")

    with stopped(installation, "labour-api", "notification-api"):
        outbox = screen.tile("Labour outbox")
        expect(outbox.locator(".figure .mark")).to_have_text(re.compile(r"\? as of \d\d:\d\d:\d\d"))
        expect(outbox).to_have_attribute("data-stale", "")
        expect(outbox.locator(".processes li", has_text="labour-api")).to_contain_text("✕ down")
        expect(screen.page.locator("#told")).to_have_text("labour-api does not answer; this is how it was")
        expect(screen.page.locator("#account-note")).to_contain_text("notification-api and labour-api do not answer")
        expect(screen.verdict).to_have_text("✕ 2 processes are not well")
        screen.button("Begin").click()
        expect(screen.button("Begin")).to_have_attribute("aria-busy", "true")

    expect(screen.said.first).to_contain_text("The labour has begun.")
    expect(screen.phone("Leslie").locator(".body")).to_contain_text(["Ada is in labour."])
    expect(screen.page.locator("[data-stale]")).to_have_count(0)
    eventually(screen, screen.is_balanced)


def test_when_the_console_dies_the_page_says_so_and_comes_back_by_itself(
    screen: Screen, installation: Installation
) -> None:
    with stopped(installation, "console"):
        expect(screen.page.locator("#offline")).to_contain_text("No word from the console since")
        expect(screen.verdict).to_have_text("? no word from the console")

    expect(screen.page.locator("#offline")).to_be_hidden()
    expect(screen.verdict).to_have_text("✓ all is well")


def test_the_keyboard_is_enough(screen: Screen) -> None:
    screen.plan("Ken")
    screen.page.reload()
    screen.page.keyboard.press("Tab")
    expect(screen.page.get_by_role("link", name="Skip to the labour")).to_be_focused()

    for name, key, says in (
        ("Begin", "Enter", "The labour has begun."),
        ("Kill notification-dispatcher", "Space", "Killed notification-dispatcher"),
    ):
        tab_to(screen, screen.button(name))
        screen.page.keyboard.press(key)
        expect(screen.said.first).to_contain_text(says)
    fault = screen.page.get_by_role("switch", name="slow", exact=True)
    tab_to(screen, fault)
    screen.page.keyboard.press("Space")
    expect(fault).to_be_checked()
    screen.page.keyboard.press("Space")
    expect(fault).not_to_be_checked()

    expect(screen.phone("Ken").locator(".body")).to_contain_text(["Ada is in labour."])


@pytest.mark.parametrize(
    ("picture", "options"),
    [
        ("console-desktop", {}),
        ("console-dark", {"color_scheme": "dark"}),
        ("console-phone", {"viewport": PHONE}),
        ("console-phone-dark", {"viewport": PHONE, "color_scheme": "dark"}),
    ],
)
def test_axe_finds_nothing_and_nothing_sticks_out(
    browser: Browser, installation: Installation, picture: str, options: Any
) -> None:
    with open_screen(browser, installation.settings.url("console"), reduced_motion="reduce", **options) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        expect(screen.page.locator(".faults li")).to_have_count(19)
        expect(screen.page.locator(".phone").first).to_be_visible()

        found = Axe().run(screen.page)
        sticking_out = screen.page.evaluate(
            "[...document.querySelectorAll('main *, header *')].filter((node) => node.checkVisibility()"
            " && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((node) => node.outerHTML)"
        )

        assert found.violations_count == 0, found.generate_report()
        assert sticking_out == []
        if picture in ("console-dark", "console-phone"):
            screen.picture(picture)


def test_the_hint_stays_until_it_is_read_and_colours_follow_the_system_until_somebody_chooses(screen: Screen) -> None:
    def ground() -> str:
        return str(screen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    hint, light = screen.page.locator("#hint"), ground()
    expect(hint).to_contain_text("Then kill labour-relay")
    screen.button("Got it").click()
    expect(hint).to_be_hidden()
    screen.page.emulate_media(color_scheme="dark")
    dark = ground()
    assert light != dark

    screen.button("Colours: auto").click()  # light, from now on
    assert ground() == light
    screen.page.reload()
    expect(screen.verdict).to_have_class("mark ok")
    expect(hint).to_be_hidden()
    assert ground() == light
    screen.button("Colours: light").click()
    assert ground() == dark


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Origin": "http://elsewhere.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"Content-Type": "text/plain"},
        {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"},
    ],
    ids=str,
)
def test_nobody_elses_page_can_press_the_buttons(installation: Installation, headers: dict[str, str]) -> None:
    url, pid = installation.settings.url("console"), pid_of(installation, "labour-relay")
    own = {"Origin": url, "Content-Type": "application/json"} if headers else {}

    answer = httpx.post(f"{url}/api/processes/labour-relay/kill", content="{}", headers=own | headers)

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert pid_of(installation, "labour-relay") == pid


def test_the_page_loads_nothing_from_elsewhere_and_is_framed_by_nobody(installation: Installation) -> None:
    policy = httpx.get(installation.settings.url("console")).headers["content-security-policy"]

    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert httpx.get(installation.settings.url("console"), headers={"Host": "elsewhere.example"}).status_code == 403


UPDATES, A_SECOND = 360, 60


def test_sixty_updates_a_second_and_the_page_does_not_fall_behind(browser: Browser) -> None:
    with a_console_that_we_feed() as (url, put), open_screen(browser, url) as screen:
        began, last = time.monotonic(), 0
        for number in range(1, UPDATES + 1):
            last = put(number)
            screen.page.wait_for_timeout(max(0.0, began + number / A_SECOND - time.monotonic()) * 1000)
        behind = last - screen.seq()

        assert behind < last / 2  # of six seconds' worth: a page that was too slow would be ever further behind
        eventually(screen, lambda: screen.seq() == last)
        expect(screen.tile("Phones").locator(".figure b")).to_have_text(str(UPDATES))
        expect(screen.phone("+13125550199").locator(".body").first).to_have_text(f"text {UPDATES}")


def test_the_account_explains_what_is_on_its_way_and_nothing_else() -> None:
    labour, notification, texts = books(10)

    def account(texts: int = texts, claims: int = 10, there: int = 10, given_up: int = 0) -> dict[str, int]:
        claimed = {**notification, "claims": {**notification["claims"], "completed": there, "discarded": given_up}}
        return draw_up(labour, claimed, texts, {**labour["claims"], "completed": claims}, dead=0)

    assert (account()["on_the_way"], account()["unexplained"]) == (0, 0)
    assert (account(there=8)["on_the_way"], account(there=8)["unexplained"]) == (2, 0)
    assert (account(there=8, given_up=2)["on_the_way"], account(there=8, given_up=2)["discarded"]) == (0, 2)
    assert account(texts=texts + 1)["unexplained"] == 1  # a text that no row of the ledger knows of
    assert account(claims=11)["unexplained"] == 1  # a claim without an event
    assert account(there=11)["unexplained"] == 1


def books(number: int, unsettled: int = 0) -> tuple[dict[str, Any], dict[str, Any], int]:
    """What both services tell after so many events there and back, and how many texts there are."""
    counts = {"recorded": number, "published": number, "waiting": 0, "parked": 0, "discarded": 0}
    states = dict.fromkeys(("SENDING", "IN_DOUBT", "DELIVERED", "UNDELIVERED", "FAILED"), 0)
    common = {
        "outbox": {**counts, "oldest_waiting_seconds": None},
        "claims": {"completed": number, "discarded": 0, "repeats": number // 3},
        "events": [],
    }
    ledger = {"states": {**states, "SENT": number, "PENDING": unsettled}, "oldest_unsettled_seconds": unsettled / 2}
    return (
        {**common, "topics": {"labour.completed": number}},
        {**common, "topics": {"notification.sent": number}, "ledger": ledger},
        number,
    )


@contextmanager
def a_console_that_we_feed() -> Iterator[tuple[str, Callable[[int], int]]]:
    """The real server with nobody watching for it: what is on its board is up to us. Returns the sequence number after each."""
    settings = Settings(free_port_base(), PROJECT_ROOT)
    board, stop, loop = Board(), asyncio.Event(), asyncio.new_event_loop()
    port, url = settings.port("console"), settings.url("console")
    app = create_app(settings, port, board, Watch(settings, board))
    serving = threading.Thread(
        target=loop.run_until_complete, args=(serve(app, host="127.0.0.1", port=port, stop=stop),)
    )

    async def write(number: int) -> int:
        labour, notification, texts = books(number, unsettled=number % 5)
        sms = {
            "faults": [],
            "total": number,
            "url": url,
            "texts": [text(n) for n in range(number, max(0, number - 60), -1)],
        }
        account = draw_up(labour, notification, texts, labour["claims"], dead=0)
        for name, data in (("labour", labour), ("notification", notification), ("sms", sms), ("account", account)):
            board.put(name, {"ok": True, "data": data})
        return board.seq

    def text(number: int) -> dict[str, Any]:
        to = "+13125550199" if number % 2 == 0 else f"+1312555010{number % 7}"
        facts = {"from": "+15005550006", "direction": "outbound-api", "status": "delivered"}
        return {**facts, "sid": str(number), "to": to, "body": f"text {number}", "created_at": "2030-01-01T00:00:00Z"}

    serving.start()
    try:
        while not board.seq:
            with suppress(httpx.TransportError):
                httpx.get(f"{url}/health").raise_for_status()
                asyncio.run_coroutine_threadsafe(write(0), loop).result()
        yield url, lambda number: asyncio.run_coroutine_threadsafe(write(number), loop).result()
    finally:
        loop.call_soon_threadsafe(stop.set)
        serving.join()
        loop.close()


@contextmanager
def stopped(installation: Installation, *names: str) -> Iterator[None]:
    runtime = EmbeddedRuntime(installation.settings, Progress(Terminal(quiet=True)))
    runtime.supervisor.stop(names)
    try:
        yield
    finally:
        for name in names:
            runtime.supervisor.start(name)


def pid_of(installation: Installation, name: str) -> int | None:
    return next(row.pid for row in processes_now(installation.settings) if row.process == name)


def tab_to(screen: Screen, target: Locator) -> None:
    """And whoever gets there can see where they are."""
    for _ in range(100):
        screen.page.keyboard.press("Tab")
        if target.evaluate("(node) => node === document.activeElement"):
            assert target.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
            return
    raise AssertionError("the keyboard does not get there")
