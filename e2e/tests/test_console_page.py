"""The console's page: keyboard, fields, accessibility, colours, and that no other page can use it."""

import re
from typing import Any

import httpx
import pytest
from axe_playwright_python.sync_playwright import Axe  # type: ignore[import-untyped]
from playwright.sync_api import APIResponse, Browser, Locator, Route, expect

from e2e.experiments.chapter_pictures import SCENES
from e2e.experiments.pictures import IMAGES, PICTURED, PICTURES, digest_of_the_page
from e2e.support.console_screen import PHONE, Screen, box, open_screen
from e2e.support.installation import Installation
from fern.runtime.system import processes_now
from fern.settings import PROJECT_ROOT


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
    tab_to(screen, screen.page.locator("#break-sms"))
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator("#panel-title")).to_be_focused()
    fault = screen.switch("slow")
    tab_to(screen, fault)
    for is_on in (True, False):
        screen.page.keyboard.press("Space")
        expect(fault).to_be_checked(checked=is_on)
    screen.page.keyboard.press("Escape")
    expect(screen.page.locator("#panel")).to_be_hidden()
    expect(screen.page.locator("#break-sms")).to_be_focused()

    expect(screen.phone("Ken").locator(".body")).to_contain_text(["Ada is in labour."])
    journey = screen.page.locator("#events button", has_text="begun").first
    tab_to(screen, journey)
    screen.page.keyboard.press("Enter")
    expect(screen.page.locator("#panel")).to_contain_text("SMS sent to Ken")


def test_a_refused_field_is_marked_and_its_neighbours_keep_what_was_typed(screen: Screen) -> None:
    screen.plan("Ken")
    name, phone = (screen.page.get_by_role("textbox", name=label) for label in ("Name", "Phone"))
    name.fill("Grace")
    phone.fill("12")

    screen.press("Add a person", "Refused: ")

    expect(phone).to_have_attribute("aria-invalid", "true")
    expect(phone).to_be_focused()
    expect(name).to_have_value("Grace")
    expect(screen.page.locator("#drive .refused")).not_to_be_empty()
    screen.faults("bus")
    delay = screen.page.locator("#panel .faults li", has_text="delay")
    delay.get_by_label("seconds").fill("0")
    screen.switch("delay").click()
    expect(delay.locator(".refused")).to_contain_text("seconds: 0")
    expect(delay.get_by_label("seconds")).to_have_attribute("aria-invalid", "true")
    delay.get_by_label("seconds").fill("0.1")
    delay.get_by_label("topic").fill("labour.planned")
    screen.switch("delay").click()
    expect(screen.said.first).to_contain_text("delay is on, 100% of the time, seconds 0.1, topic labour.planned.")


def test_a_switch_that_is_pressed_again_before_the_answer_arrives_is_switched_twice(screen: Screen) -> None:
    held = list[tuple[Route, APIResponse]]()
    screen.page.route("**/api/faults/sms/slow", lambda route: held.append((route, route.fetch())), times=1)
    screen.faults("sms")
    fault = screen.switch("slow")

    fault.click()
    expect(fault).to_be_checked()  # the page knows that the fault is on; the answer to the click is still on its way
    fault.click()
    [(route, answer)] = held
    route.fulfill(response=answer)

    expect(fault).not_to_be_checked()


def test_a_look_at_a_group_of_parked_rows_says_how_many_there_are_in_all(installation: Installation) -> None:
    url, parked = (
        installation.settings.url("console"),
        {"service": "labour", "type": "labour.begun", "reason": "too long"},
    )
    installation.execute(
        """INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, attempts, last_error,
            parked_at)
        SELECT gen_random_uuid(), 'labour.begun', 'nowhere', 0, '{}', '{}', now(), 10, 'too long', now()
        FROM generate_series(1, 1001)"""
    )
    try:
        found = httpx.post(f"{url}/api/set-aside/parked/look", json=parked, headers={"Origin": url}).json()
    finally:
        installation.execute("DELETE FROM outbox WHERE ordering_key = 'nowhere'")

    assert (len(found["items"]), found["total"]) == (20, 1001)


DARK = {"color_scheme": "dark"}


@pytest.mark.parametrize("options", [{}, DARK, {"viewport": PHONE}, {"viewport": PHONE, **DARK}], ids=str)
def test_the_page_is_accessible_and_everything_is_where_it_can_be_seen(
    browser: Browser, installation: Installation, options: Any
) -> None:
    with open_screen(browser, installation.settings.url("console"), reduced_motion="reduce", **options) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        expect(screen.page.locator(".phone").first).to_be_visible()
        expect(screen.page.locator(".story")).to_have_count(4)
        height = screen.page.evaluate("document.documentElement.scrollHeight")
        screen.faults("sms")
        expect(screen.page.locator(".faults li")).to_have_count(12)

        found = Axe().run(screen.page)
        too_wide = screen.page.evaluate(
            "[...document.querySelectorAll('main *, header *')].filter((node) => node.checkVisibility()"
            " && node.getBoundingClientRect().right > document.documentElement.clientWidth + 1).map((node) => node.outerHTML)"
        )

        assert found.violations_count == 0, found.generate_report()
        assert too_wide == []
        if options.get("viewport") == PHONE:
            assert height <= 4 * PHONE["height"]
        else:
            stations = ["client", "api", "outbox", "relay", "topic", "consumer", "ledger", "dispatcher", "provider"]
            boxes = [box(screen.station(name)) for name in stations] + [box(screen.page.locator("#phones"))]
            assert [one["x"] for one in boxes] == sorted(one["x"] for one in boxes)
            assert len({one["y"] for one in boxes[:-1]}) == 1  # one row, and the phones at its end
            assert box(screen.page.locator(".phone").first)["y"] < 400  # on the first screen


def test_colours_follow_the_system_until_they_are_chosen(screen: Screen) -> None:
    def ground() -> str:
        return str(screen.page.evaluate("getComputedStyle(document.documentElement).backgroundColor"))

    light = ground()
    screen.page.emulate_media(color_scheme="dark")
    dark = ground()
    assert light != dark

    screen.button("Colours: auto").click()  # light, from now on
    assert ground() == light
    screen.page.reload()
    expect(screen.verdict).to_have_class("mark ok")
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
    assert {path.stem for path in IMAGES.glob("console*")} == set(PICTURES)
    assert all(path.stat().st_size < 1_000_000 for path in IMAGES.glob("console*"))


def test_the_pictures_were_taken_of_the_page_as_it_is() -> None:
    assert PICTURED.read_text().strip() == digest_of_the_page(), (
        "the console's page has changed; take its pictures again: .venv/bin/python -m e2e.experiments.pictures"
    )


def test_every_chapter_of_the_tutorial_shows_the_console_and_every_picture_of_it_is_shown() -> None:
    shown = set[str]()
    for chapter in sorted((PROJECT_ROOT / "docs" / "tutorial").glob("[0-9][0-9]-*.md")):
        _, heading, part = chapter.read_text().partition("**In the console.**")
        pictures = re.findall(r"\]\(\.\./images/([\w-]+)\.png\)", part.partition("\n## ")[0])
        assert heading, chapter.name
        assert pictures, f"{chapter.name} has no picture of what to look at"
        shown |= set(pictures)

    assert {name for name in shown if name.startswith("chapter-")} == {f"chapter-{name}" for name in SCENES}
    assert {path.stem for path in IMAGES.glob("chapter-*")} == {f"chapter-{name}" for name in SCENES}


def pid_of(installation: Installation, name: str) -> int | None:
    return next(row.pid for row in processes_now(installation.settings) if row.process == name)


def tab_to(screen: Screen, target: Locator) -> None:
    """Press Tab until the target has the focus, which must be visible."""
    for _ in range(120):
        screen.page.keyboard.press("Tab")
        if target.evaluate("(node) => node === document.activeElement"):
            assert target.evaluate("(node) => getComputedStyle(node).outlineStyle") == "solid"
            return
    raise AssertionError("the target cannot be reached with the keyboard")
