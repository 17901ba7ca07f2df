"""The console in a real browser: a labour is clicked through, processes and providers fail, and the page shows it."""

import re
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import APIResponse, Browser, Locator, Route, expect

from e2e.experiments.pictures import IMAGES, PICTURES
from e2e.support.console_screen import PHONE, Screen, open_screen
from e2e.support.installation import Installation
from e2e.support.waiting import until
from fern.runtime.system import processes_now


@pytest.fixture
def screen(browser: Browser, installation: Installation) -> Iterator[Screen]:
    with open_screen(browser, installation.settings.url("console")) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        yield screen
        screen.button("Clear all faults").click()
        until(lambda: {row.health for row in processes_now(installation.settings)}, lambda seen: seen == {"healthy"})


def test_everyone_is_told_once_and_every_stage_shows_it(screen: Screen) -> None:
    screen.plan("Barbara", "Radia")

    screen.button("Begin").click()
    expect(screen.page.locator(".phone[data-lit]", has_text="Barbara")).to_be_visible()  # first: it lasts six seconds
    expect(screen.said.first).to_contain_text("The labour has begun. 2 on the list, each to be told once.")
    expect(screen.phone("Radia").locator(".body")).to_contain_text(["Ada is in labour."])
    screen.press("Begin", "Refused: This labour has begun already.")
    screen.press("Start a contraction", "A contraction starts.")
    screen.press("End the contraction", "The contraction is over.")
    screen.press("Announce", "Announced. 2 on the list")
    for name in ("Barbara", "Radia"):  # a text that had not gone out would be superseded by the birth
        expect(screen.phone(name).locator(".body")).to_contain_text(["Nearly there!", "Ada is in labour."])
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
    screen.until_balanced()
    screen.press("Complete", "Refused: This labour is complete")


def test_the_account_is_balanced_after_faults_and_crashes(screen: Screen, installation: Installation) -> None:
    screen.plan("Edsger", "Frances")
    screen.until_balanced()
    before, pid = screen.account(), pid_of(installation, "notification-consumer")

    for fault in ("duplicate", "reply-lost"):
        screen.switch(fault).click()
        expect(screen.said.first).to_contain_text(f"{fault} is on, 100% of the time.")
    expect(screen.verdict).to_have_text("◷ 2 faults on, on purpose")
    screen.press("Kill notification-consumer", f"Killed notification-consumer (pid {pid}); the supervisor starts it")
    with installation.stopped("labour-relay"):
        screen.press("Begin", "The labour has begun.")
        outbox = screen.tile("Labour outbox")
        expect(outbox.locator(".figure")).to_contain_text(re.compile(r"1 waiting\s*✕ relay down"))
        expect(outbox.locator(".facts")).to_contain_text(re.compile(r"oldest \d"))

    consumer = screen.tile("Topics").locator(".processes li", has_text="notification-consumer")
    expect(consumer.get_by_role("img", name=re.compile("restarted"))).to_be_visible()
    for name in ("Edsger", "Frances"):
        expect(screen.phone(name).locator(".body")).to_contain_text(["Ada is in labour."])
    screen.until_balanced()
    assert screen.account()["SMS"] == before["SMS"] + 2
    until(lambda: screen.account()["absorbed"] > before["absorbed"], what="a repetition is absorbed")
    screen.press("Clear all faults", "is off")
    for fault in ("duplicate", "reply-lost"):
        expect(screen.switch(fault)).not_to_be_checked()
    expect(screen.verdict).to_have_text("✓ all is well")


def test_while_the_apis_are_down_old_data_is_marked_and_a_request_waits(
    screen: Screen, installation: Installation
) -> None:
    screen.plan("Leslie")

    with installation.stopped("labour-api", "notification-api"):
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
    screen.until_balanced()


def test_while_the_console_is_down_the_page_says_so_and_reconnects_by_itself(
    screen: Screen, installation: Installation
) -> None:
    with installation.stopped("console"):
        expect(screen.page.locator("#offline")).to_contain_text("No word from the console since")
        expect(screen.verdict).to_have_text("? no word from the console")

    expect(screen.page.locator("#offline")).to_be_hidden()
    expect(screen.verdict).to_have_text("✓ all is well")


def test_everything_can_be_done_with_the_keyboard(screen: Screen) -> None:
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
    fault = screen.switch("slow")
    tab_to(screen, fault)
    screen.page.keyboard.press("Space")
    expect(fault).to_be_checked()
    screen.page.keyboard.press("Space")
    expect(fault).not_to_be_checked()

    expect(screen.phone("Ken").locator(".body")).to_contain_text(["Ada is in labour."])


def test_a_switch_that_is_pressed_again_before_the_answer_arrives_is_switched_twice(screen: Screen) -> None:
    held = list[tuple[Route, APIResponse]]()
    screen.page.route("**/api/faults/sms/slow", lambda route: held.append((route, route.fetch())), times=1)
    fault = screen.switch("slow")

    fault.click()
    expect(fault).to_be_checked()  # the page knows that the fault is on; the answer to the click is still on its way
    fault.click()
    [(route, answer)] = held
    route.fulfill(response=answer)

    expect(fault).not_to_be_checked()


DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize("options", [{}, DARK, {"viewport": PHONE}, {"viewport": PHONE, **DARK}], ids=str)
def test_the_page_is_accessible_and_no_element_is_wider_than_the_screen(
    browser: Browser, installation: Installation, options: Any
) -> None:
    with open_screen(browser, installation.settings.url("console"), reduced_motion="reduce", **options) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        expect(screen.page.locator(".faults li")).to_have_count(19)
        expect(screen.page.locator(".phone").first).to_be_visible()

        found = Axe().run(screen.page)
        too_wide = screen.page.evaluate(
            "[...document.querySelectorAll('main *, header *')].filter((node) => node.checkVisibility()"
            " && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((node) => node.outerHTML)"
        )

        assert found.violations_count == 0, found.generate_report()
        assert too_wide == []


def test_the_hint_stays_until_it_is_closed_and_colours_follow_the_system_until_they_are_chosen(screen: Screen) -> None:
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


FOREIGN: list[dict[str, str]] = [
    *({"Origin": origin} for origin in ("http://elsewhere.example", "null")),
    *({"Sec-Fetch-Site": site} for site in ("cross-site", "same-site")),
    {"Host": "elsewhere.example", "Origin": "http://elsewhere.example"},
    {"Content-Type": "text/plain"},
    {},
]


@pytest.mark.parametrize("headers", FOREIGN, ids=str)
def test_a_page_of_another_origin_cannot_press_the_buttons(installation: Installation, headers: dict[str, str]) -> None:
    url, pid = installation.settings.url("console"), pid_of(installation, "labour-relay")
    own = {"Origin": url, "Content-Type": "application/json"} if headers else {}

    answer = httpx.post(f"{url}/api/processes/labour-relay/kill", content="{}", headers=own | headers)

    assert answer.status_code == 403
    assert answer.headers["content-type"] == "application/problem+json"
    assert pid_of(installation, "labour-relay") == pid


def test_the_page_loads_nothing_from_other_origins_and_cannot_be_framed(installation: Installation) -> None:
    policy = httpx.get(installation.settings.url("console")).headers["content-security-policy"]

    assert "default-src 'self'" in policy
    assert "frame-ancestors 'none'" in policy
    assert httpx.get(installation.settings.url("console"), headers={"Host": "elsewhere.example"}).status_code == 403


def test_the_docs_have_every_picture_of_the_console_and_no_other() -> None:
    assert {path.stem for path in IMAGES.glob("*.png")} == set(PICTURES)


def pid_of(installation: Installation, name: str) -> int | None:
    return next(row.pid for row in processes_now(installation.settings) if row.process == name)


def tab_to(screen: Screen, target: Locator) -> None:
    """Press Tab until the target has the focus, which must be visible."""
    for _ in range(100):
        screen.page.keyboard.press("Tab")
        if target.evaluate("(node) => node === document.activeElement"):
            assert target.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
            return
    raise AssertionError("the target cannot be reached with the keyboard")
