"""Pictures of the console for the tutorial: for each chapter, the system in the state that the chapter is about.

A chapter without a scene here shows one of the pictures of `e2e.experiments.pictures`.
"""

from collections.abc import Callable
from pathlib import Path

from playwright.sync_api import Browser, FloatRect, expect

from e2e.support.api import client, speaking_as
from e2e.support.console_screen import Screen, box, open_screen
from e2e.support.installation import Installation
from e2e.support.waiting import until
from fern.settings import PROJECT_ROOT

IMAGES = PROJECT_ROOT / "docs" / "images"
STAGE = "#stage"

Scene = Callable[[Screen, Installation], str]
"""Brings the system into its state, and returns the part of the page to take."""


def waits(screen: Screen, name: str, station: str) -> None:
    token = screen.tokens("event").filter(has_text=name).last
    expect(token).to_have_attribute("data-state", "waits")
    expect(token).to_have_attribute("data-at", station)


def hold(screen: Screen, process: str) -> None:
    screen.press(f"Hold {process} down", f"Killed {process}")
    expect(screen.process(process)).to_contain_text("held down")


def paused_at(screen: Screen, token: str) -> str:
    """Pause in the frame in which the token is there: some stay for a fraction of a second."""
    pause = "(token) => document.querySelector(token) && (document.getElementById('pause').click(), true)"
    screen.page.wait_for_function(pause, arg=token)
    return STAGE


def recorded(screen: Screen, _: Installation) -> str:
    """A relay that is held down leaves every recorded event at the database."""
    screen.plan()
    screen.press("Complete", "The baby is here")
    screen.until_balanced()
    hold(screen, "labour-relay")
    screen.plan("Grace")
    screen.press("Begin", "The labour has begun.")
    screen.press("Complete", "The baby is here")
    waits(screen, "born", "outbox")
    return STAGE


def dual_write(screen: Screen, installation: Installation) -> str:
    """The change without its event, as the naive program writes it."""
    screen.plan("Grace")
    screen.until_balanced()
    installation.execute(
        "UPDATE labour SET phase = 'complete', completed_at = now() WHERE id = (SELECT id FROM labour ORDER BY id DESC LIMIT 1)",
    )
    expect(screen.page.locator("#phase")).to_have_text("complete")
    return "#drive, #stage"


def backlog(screen: Screen, installation: Installation) -> str:
    """An outbox with more rows than the stage draws."""
    hold(screen, "labour-relay")
    with client(installation.settings.url("labour-api")) as api:
        for number in range(14):
            mother = speaking_as(f"crowd-{number}")
            api.post("/api/v1/labours", json={"mother_name": "Mary"}, headers=mother).raise_for_status()
    waits(screen, "planned", "outbox")
    expect(screen.station("outbox")).to_contain_text("more wait")
    return STAGE


def duplicate(screen: Screen, _: Installation) -> str:
    screen.plan("Grace", "Alan")
    screen.until_balanced()
    screen.switch("Slow motion, 1/20").click()
    screen.press("Play: Publish, then die", "has begun")
    return paused_at(screen, ".token.duplicate[data-at=ledger]")


def unclaimed(screen: Screen, _: Installation) -> str:
    screen.plan("Grace")
    screen.until_balanced()
    hold(screen, "notification-consumer")
    screen.press("Complete", "The baby is here")
    waits(screen, "born", "topic")
    return STAGE


def in_doubt(screen: Screen, _: Installation) -> str:
    screen.plan("Grace", "Alan")
    screen.until_balanced()
    screen.switch("Slow motion, 1/20").click()
    screen.press("Play: The answer is lost", "The labour has begun.")
    return paused_at(screen, ".token.doubt")


def early(screen: Screen, _: Installation) -> str:
    screen.plan()
    screen.faults("bus")
    screen.page.locator("#panel .faults li", has_text="drop-streams").get_by_label("topic").fill("subscriber.added")
    screen.switch("drop-streams").click()
    expect(screen.said.first).to_contain_text("drop-streams is on")
    screen.button("Close").click()
    screen.page.get_by_role("textbox", name="Name").fill("Grace")
    screen.press("Add a person", "Grace is on the list")
    screen.press("Begin", "The labour has begun.")
    waits(screen, "added", "topic")
    waits(screen, "begun", "topic")
    return STAGE


def same_key(screen: Screen, _: Installation) -> str:
    screen.plan("Grace")
    screen.until_balanced()
    screen.press("Complete twice, same key", "Second tap, same key")
    expect(screen.page.locator("#phase")).to_have_text("complete")
    expect(screen.phone("Grace").locator(".body")).to_have_count(1)
    return "#drive, #stage"


def dead_letter(screen: Screen, installation: Installation) -> str:
    screen.plan("Grace")
    screen.press("Begin", "The labour has begun.")
    expect(screen.phone("Grace").locator(".body")).to_have_count(1)
    hold(screen, "labour-relay")
    screen.press("Announce", "Announced")
    spoilt = "payload = jsonb_set(payload::jsonb, '{roster_version}', '\"x\"')::text"
    installation.execute(f"UPDATE outbox SET {spoilt} WHERE published_at IS NULL")
    screen.button("Release labour-relay").click()
    expect(screen.page.locator("#dead-list li")).to_contain_text("wrong-schema 1 message")
    return "#aside"


def unknown_event(screen: Screen, installation: Installation) -> str:
    """An event that the project's topology does not name, published by a copy of the project."""
    screen.plan("Grace")
    screen.until_balanced()
    hold(screen, "labour-relay")
    screen.press("Begin", "The labour has begun.")
    expect(screen.page.locator(".token")).to_have_count(1)
    screen.switch("Slow motion, 1/20").click()
    installation.execute("UPDATE outbox SET topic = 'labour.paused', published_at = now() WHERE published_at IS NULL")
    return paused_at(screen, ".token.event[data-at=topic][title^='labour.paused']")


def unknown_version(screen: Screen, installation: Installation) -> str:
    """A birth of a version that neither consumer knows."""
    discard = (
        "dlq",
        "discard",
        "--reason",
        "wrong-schema",
        "--yes",
    )  # finds nothing while the page looks at the dead letters
    until(
        lambda: installation.fern(*discard).returncode, lambda code: code == 0, what="the other picture's is discarded"
    )
    screen.plan("Grace")
    hold(screen, "labour-relay")
    screen.press("Complete", "The baby is here")
    newer = "jsonb_set(attributes, '{ce-dataschema}', '\"urn:fernlabour:labour.completed:9\"')"
    installation.execute(
        f"UPDATE outbox SET attributes = {newer} WHERE published_at IS NULL AND topic = 'labour.completed'"
    )
    screen.button("Release labour-relay").click()
    expect(screen.page.locator("#dead-list li").filter(has_text="unknown-version")).to_have_count(2)
    return "#aside"


def account(screen: Screen, _: Installation) -> str:
    screen.plan("Grace", "Alan")
    screen.press("Complete", "The baby is here")
    screen.until_balanced()
    return "#account"


def unexplained(screen: Screen, installation: Installation) -> str:
    """The claims of the chapter, which no event has caused."""
    claims = "SELECT 'tutorial', uuidv7(), 'COMPLETED', now() FROM generate_series(1, 100000)"
    columns = "consumer, event_id, status, claimed_at"
    installation.execute(f"INSERT INTO processed_event ({columns}) {claims}", "notification")
    expect(screen.page.locator("#account")).to_contain_text("look into it")
    return "#account"


def nothing_recorded(screen: Screen, _: Installation) -> str:
    screen.plan("Grace")
    screen.until_balanced()
    expect(screen.page.locator(".token")).to_have_count(0)
    return STAGE


def statistics(screen: Screen, _: Installation) -> str:
    screen.plan("Grace")
    screen.until_balanced()
    screen.switch("Slow motion, 1/20").click()
    screen.press("Begin", "The labour has begun.")
    return paused_at(screen, ".token[data-at=statistics]")


def pushed(screen: Screen, installation: Installation) -> str:
    assert installation.fern("topology", "set", "notification", "push").returncode == 0
    screen.plan("Grace", "Alan")
    screen.press("Complete", "The baby is here")
    for name in ("Grace", "Alan"):
        expect(screen.phone(name).locator(".body")).to_have_count(1)
    return STAGE


def consent(screen: Screen, _: Installation) -> str:
    screen.switch("SMS consent required").click()
    expect(screen.said.first).to_contain_text("Consent is required")
    screen.plan("Grace")
    expect(screen.phone("Grace").locator(".body")).to_contain_text(["YES"])
    screen.press("Begin", "The labour has begun.")
    expect(screen.tokens("text").filter(has_text="Grace").last).to_have_attribute("data-state", "waits")
    return STAGE


def waterfall(screen: Screen, _: Installation) -> str:
    screen.plan("Grace")
    screen.press("Complete", "The baby is here")
    screen.until_balanced()
    screen.page.locator("#events button", has_text="born").first.click()
    expect(screen.page.locator(".spans > li").filter(has_text="publish notification.delivered").first).to_be_visible()
    return "#panel"


SCENES: dict[str, Scene] = {  # in this order: the last ones leave traces that others would show
    "02-recorded": recorded,
    "03-dual-write": dual_write,
    "05-backlog": backlog,
    "06-repeat": duplicate,
    "07-unclaimed": unclaimed,
    "08-in-doubt": in_doubt,
    "09-early": early,
    "10-same-key": same_key,
    "13-nothing-recorded": nothing_recorded,
    "14-account": account,
    "15-statistics": statistics,
    "18-unknown-event": unknown_event,
    "19-waterfall": waterfall,
    "11-dead-letter": dead_letter,
    "20-unknown-version": unknown_version,
    "17-consent": consent,
    "16-pushed": pushed,
    "12-unexplained": unexplained,
}


def picture(name: str) -> Path:
    return IMAGES / f"chapter-{name}.png"


def undo(screen: Screen) -> None:
    """Release the processes that the scene before has held down, and clear its faults."""
    for process in ("labour-relay", "notification-consumer"):
        expect(screen.process(process)).to_be_visible()
        if screen.button(f"Release {process}").is_visible():
            screen.button(f"Release {process}").click()
            expect(screen.process(process)).to_contain_text("healthy")
    asking = screen.switch("SMS consent required")
    if asking.is_checked():
        asking.click()
        expect(screen.said.first).to_contain_text("Consent is assumed")
    screen.press("Clear all faults", "Every fault of the provider is off.")


def take_chapter(browser: Browser, installation: Installation, name: str) -> None:
    with open_screen(browser, installation.settings.url("console")) as screen:
        undo(screen)
        parts = screen.page.locator(SCENES[name](screen, installation)).all()
        screen.page.evaluate("scrollTo(0, 0)")
        boxes = [box(part) for part in parts]
        left, top = min(one["x"] for one in boxes), min(one["y"] for one in boxes)
        right, bottom = (max(one[at] + one[size] for one in boxes) for at, size in (("x", "width"), ("y", "height")))
        clip: FloatRect = {"x": left, "y": top, "width": right - left, "height": bottom - top}
        screen.page.screenshot(path=picture(name), clip=clip, full_page=True)
