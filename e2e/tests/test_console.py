"""The console in a real browser: a labour is clicked through, processes and providers fail, and the page shows it."""

import re

import pytest
from playwright.sync_api import expect

from e2e.support.console_screen import Screen, is_in_window, is_inside
from e2e.support.installation import Installation


def test_everyone_is_told_once_and_the_next_step_is_always_recommended(screen: Screen) -> None:
    recommended = screen.page.locator("#drive .next")
    screen.plan()
    expect(recommended).to_have_text("Add a person")
    screen.plan("Barbara", "Radia")
    expect(recommended).to_have_text("Begin")

    screen.button("Begin").click()
    expect(screen.page.locator(".phone[data-lit]", has_text="Barbara")).to_be_visible()  # first: it lasts six seconds
    expect(screen.said.first).to_contain_text("The labour has begun. 2 on the list, each to be told once.")
    expect(recommended).to_have_text("Announce")
    screen.press("Begin", "Refused: This labour has begun already.")
    expect(screen.page.locator("#result")).to_have_text("✕ Refused: This labour has begun already.")
    screen.press("Start a contraction", "A contraction starts.")
    screen.press("End the contraction", "The contraction is over.")
    screen.press("Announce", "Announced. 2 on the list")
    for name in ("Barbara", "Radia"):  # a text that had not gone out would be superseded by the birth
        expect(screen.phone(name).locator(".body")).to_contain_text(["Nearly there!", "Ada is in labour."])
    expect(recommended).to_have_text("Complete")
    screen.press(
        "Complete twice, same key", "Second tap, same key: the same answer, replayed. No person is told twice."
    )
    expect(screen.said.nth(1)).to_contain_text("First tap: the baby is here!")

    for name in ("Barbara", "Radia"):
        texts = screen.phone(name).locator(".body")
        expect(texts).to_contain_text(["The baby is here!", "Nearly there!", "Ada is in labour."])
        expect(screen.told(name)).to_have_text(f"{name} begun ✓ announced ✓ born ✓")
    expect(recommended).to_have_text("Plan a labour")
    screen.until_balanced()

    screen.page.locator("#events button", has_text="born").first.click()
    hops = screen.page.locator("#panel .hops li")
    expect(hops.filter(has_text="SMS delivered")).to_have_count(2)
    expect(hops.first).to_contain_text(re.compile(r"\+0 ms.*request PUT .*/complete · idempotency key"))
    for name in ("Barbara", "Radia"):
        expect(hops.filter(has_text=f"SMS sent to {name}")).to_have_count(1)
    screen.button("Play again on the stage").click()
    expect(screen.tokens("event").filter(has_text="born").last).to_be_visible()
    expect(screen.phone("Radia").locator(".body")).to_have_count(3)  # a replay sends nothing


def test_an_event_waits_where_its_process_is_held_down_and_goes_on_when_it_is_released(screen: Screen) -> None:
    screen.plan("Edsger", "Frances")
    screen.until_balanced()
    before = screen.account()

    screen.press("Hold labour-relay down", "Killed labour-relay; it stays down until it is released.")
    expect(screen.process("labour-relay")).to_contain_text("✕ held down")
    expect(screen.verdict).to_have_text("✕ labour-relay: held down")
    screen.press("Begin", "The labour has begun.")
    waiting = screen.tokens("event").filter(has_text="begun").last
    expect(waiting).to_have_attribute("data-state", "waits")
    expect(waiting).to_have_attribute("aria-label", "labour.begun, at: Database, waits for labour-relay")
    assert is_inside(waiting, screen.station("outbox"))
    expect(screen.told("Edsger")).to_have_text("Edsger nothing yet")
    screen.press("Announce", "Announced.")
    expect(screen.page.locator("#drive .next")).to_have_text("Complete")  # also while no one has been told

    screen.press("Kill notification-consumer", "Killed notification-consumer (pid")
    screen.press("Release labour-relay", "labour-relay is started again.")

    for name in ("Edsger", "Frances"):
        expect(screen.phone(name).locator(".body").first).to_contain_text("Nearly there!")
        expect(screen.told(name)).to_contain_text("announced ✓")
    expect(screen.process("notification-consumer").get_by_role("img", name=re.compile("restarted"))).to_be_visible()
    screen.until_balanced()
    sent = screen.account()["SMS"] - before["SMS"]
    assert 2 <= sent <= 4  # the announcement supersedes a "begun" that was not sent yet


@pytest.mark.parametrize("story", ["Publish, then die", "The answer is lost", "The bus repeats everything"])
def test_a_story_breaks_the_system_and_no_text_is_sent_twice(screen: Screen, story: str) -> None:
    screen.plan("Ken")
    screen.until_balanced()
    before = screen.account()

    screen.record_tokens()
    screen.button(f"Play: {story}").click()
    expect(screen.page.locator("[data-station=client]")).to_be_in_viewport()

    if story == "The answer is lost":
        screen.until_token("doubt", "Ken?", "provider", "gone")  # it was asked
    else:
        screen.until_token("duplicate", "begun ↩", "topic", "gone")  # it turned back
    expect(screen.told("Ken")).to_have_text("Ken begun ✓")
    expect(screen.phone("Ken").locator(".body")).to_have_count(1)
    screen.until_balanced()
    after = screen.account()
    assert after["SMS"] == before["SMS"] + 1
    assert (after["absorbed"] > before["absorbed"]) == (story != "The answer is lost")


def test_two_consumers_race_and_one_of_them_writes_the_text(screen: Screen) -> None:
    screen.plan("Margaret")
    screen.until_balanced()
    before = screen.account()["absorbed"]

    screen.press("Play: Two consumers race", "The labour has begun.")

    expect(screen.process("notification-consumer-2")).to_contain_text("healthy")
    expect(screen.told("Margaret")).to_have_text("Margaret begun ✓")
    expect(screen.phone("Margaret").locator(".body")).to_have_count(1)
    screen.until_balanced()
    assert screen.account()["absorbed"] > before  # the duplicate
    screen.press("Clear all faults", "notification-consumer: 1 running.")
    expect(screen.process("notification-consumer-2")).to_have_count(0)


def test_a_text_waits_in_the_ledger_until_the_person_answers_yes(screen: Screen) -> None:
    consent = screen.switch("SMS consent required")
    consent.click()
    expect(screen.said.first).to_contain_text("Consent is required: a person is asked first")
    expect(consent).to_be_checked()

    screen.plan("Grace")
    texts = screen.phone("Grace").locator(".body")
    expect(texts).to_contain_text(["YES"])
    screen.press("Begin", "The labour has begun.")
    waiting = screen.tokens("text").filter(has_text="Grace").last
    expect(waiting).to_have_attribute("aria-label", "text Grace, at: Ledger, waits until the person replies YES")
    screen.phone("Grace").get_by_role("button", name="answers YES").click()

    expect(texts.filter(has_text="Ada is in labour.")).to_have_count(1)
    expect(screen.told("Grace")).to_have_text("Grace asked ✓ begun ✓")
    consent.click()
    expect(screen.said.first).to_contain_text("Consent is assumed")
    expect(consent).not_to_be_checked()


def test_dead_letters_and_parked_rows_are_changed_by_reason_after_a_preview(
    screen: Screen, installation: Installation
) -> None:
    def spoil(press: str, says: str, change: str) -> None:
        screen.button("Hold labour-relay down").click()
        expect(screen.button("Release labour-relay")).to_be_visible()
        screen.press(press, says)
        installation.execute(f"UPDATE outbox SET {change} WHERE published_at IS NULL")
        screen.button("Release labour-relay").click()

    aside, panel = screen.page.locator("#aside"), screen.page.locator("#panel")
    screen.plan("Leslie")
    screen.press("Begin", "has begun")
    expect(aside).to_contain_text("No dead letters and no parked rows.")

    spoil("Announce", "Announced", "payload = jsonb_set(payload::jsonb, '{roster_version}', '\"x\"')::text")
    dead = aside.locator("#dead-list li")
    expect(dead).to_contain_text("wrong-schema 1 message · labour.announced, for notification")
    expect(screen.verdict).to_have_text("◷ 1 message set aside, for you to decide")
    expect(screen.tokens("event").filter(has_text="announced").last).to_have_attribute(
        "aria-label", "labour.announced, at: Topic, dead letter: see Set aside"
    )
    dead.get_by_role("button", name="Look").click()
    expect(panel).to_contain_text("1 of 1 dead letter, without names, numbers and texts.")
    expect(panel).to_contain_text("[private]")
    assert is_in_window(panel)  # what was looked up has made it longer
    dead.get_by_role("button", name="Discard").click()
    expect(panel).to_contain_text("They never have an effect, not even after a replay")
    panel.get_by_role("button", name="Discard").click()
    expect(screen.said.first).to_contain_text("1 message is discarded, and will never have an effect.")
    expect(dead).to_have_count(0)

    too_long = """attributes = attributes || jsonb_build_object('spoilt', repeat('x', 1025)), attempts = 9"""
    spoil("Complete", "The baby is here", too_long)
    parked = aside.locator("#parked-list li")
    expect(parked).to_contain_text("1 message · labour.completed, in the outbox of labour")
    expect(screen.tokens("event").filter(has_text="born").last).to_have_attribute("data-state", "bad")
    screen.press("Clear all faults", "Every fault of")
    expect(screen.said.filter(has_text="tried again")).to_have_count(0)  # that would be without a preview
    installation.execute("UPDATE outbox SET attributes = attributes - 'spoilt'")
    parked.get_by_role("button", name="Retry").click()
    expect(panel).to_contain_text("The relay tries 1 parked row of 1 labour again, with all attempts left.")
    panel.get_by_role("button", name="Retry").click()

    expect(screen.phone("Leslie").locator(".body").first).to_contain_text("The baby is here!")
    expect(aside).to_contain_text("No dead letters and no parked rows.")


def test_while_the_apis_are_down_old_data_is_marked_and_a_request_waits(
    screen: Screen, installation: Installation
) -> None:
    screen.plan("Leslie")

    with installation.stopped("labour-api", "notification-api"):
        for station in ("outbox", "ledger"):
            expect(screen.station(station)).to_have_attribute("data-stale", "")
            expect(screen.station(station)).to_contain_text("does not answer")
        expect(screen.process("labour-api")).to_contain_text("✕ held down")
        expect(screen.page.locator("#phase")).to_have_text("not known: labour-api does not answer")
        expect(screen.page.locator("#account-note")).to_contain_text("notification-api does not answer")
        expect(screen.verdict).to_have_text("✕ 2 processes are not healthy")
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
        expect(screen.page.locator("#offline")).to_contain_text("No answer from the console since")
        expect(screen.verdict).to_have_text("? no answer from the console")

    expect(screen.page.locator("#offline")).to_be_hidden()
    expect(screen.verdict).to_have_text("✓ everything is healthy")
