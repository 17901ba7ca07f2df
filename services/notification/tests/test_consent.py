"""Consent: a number gets one question and nothing else until its owner says YES, and nothing at all after STOP."""

import json

import pytest
from uuid_utils.compat import uuid7

from messaging.errors import SettingsError
from notification.delivery import consents, ledger
from notification.delivery.dispatcher import AFTER_CALL
from notification.domain.consent import Mode
from notification.settings import ApiSettings

from .consent_parts import (
    ASKED,
    Course,
    consent_of,
    grow_older,
    handle,
    ledger_rows,
    on_the_phone,
    send_all,
    states,
)
from .sms_parts import PHONE, PostOffice, held_at, notification

BEGUN = "FernLabour: Ada is in labour. We will tell you when the baby is here. Reply STOP to stop."
BORN = "FernLabour: The baby is here! Ada has given birth. Reply STOP to stop."
WAITING = "AWAITING_CONSENT"
DAY = 86400.0


async def reasons(office: PostOffice, event: str) -> list[str]:
    """The reasons in the events of this type."""
    async with office.units() as uow:
        rows = await uow.connection.fetch("SELECT payload FROM outbox WHERE topic = $1 ORDER BY position", event)
        return [json.loads(row["payload"])["reason"] for row in rows]


# Before the answer


async def test_a_person_who_is_added_is_asked_and_gets_nothing_else_until_they_agree(office: PostOffice) -> None:
    course = Course()

    await handle(office, course.add())
    await handle(office, course.begin())
    await handle(office, course.complete())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    assert await states(office) == [
        ("consent.requested", "SENT"),
        ("labour.begun", WAITING),
        ("labour.completed", WAITING),
    ]


async def test_the_question_is_told_as_any_text_so_that_the_mother_sees_who_was_asked(office: PostOffice) -> None:
    await handle(office, added := Course().add())
    await send_all(office)

    [question] = await ledger_rows(office)
    assert (question["event_id"], question["sequence"]) == (added.id, None)
    assert await office.events(question["id"]) == ["notification.sent"]


async def test_a_number_is_asked_once_whichever_labour_wants_it(office: PostOffice) -> None:
    ada, eve = Course("Ada"), Course("Eve")

    await handle(office, ada.add(), eve.add(), eve.begin())
    await handle(office, Course("Ida").add())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]


async def test_a_number_without_an_answer_is_asked_again_after_thirty_days_if_it_is_added_again(
    office: PostOffice,
) -> None:
    await handle(office, Course("Ada").add())
    await grow_older(office, table="consent", column="asked_at", days=consents.ASK_AGAIN_DAYS - 1)
    await handle(office, Course("Eve").add())
    await grow_older(office, table="consent", column="asked_at", days=1)
    await handle(office, Course("Ida").add())
    await handle(office, Course("Amy").add())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), ASKED.format("Ida")]


@pytest.mark.parametrize("end", ["FAILED", "UNDELIVERED"])
async def test_a_number_is_asked_again_a_day_after_a_question_that_did_not_arrive(office: PostOffice, end: str) -> None:
    course = Course()
    await handle(office, course.add())
    office.fault(
        "refused" if end == "FAILED" else "undelivered", times=1, **({"code": 21606} if end == "FAILED" else {})
    )
    await send_all(office)
    [question] = await ledger_rows(office)
    if end == "UNDELIVERED":
        assert await office.callback(question["id"], "undelivered", sid=question["sid"])
    assert await states(office) == [("consent.requested", end)]

    await handle(office, course.begin())
    await grow_older(office, table="consent", column="asked_at", days=1)
    await handle(office, course.announce())
    await handle(office, course.complete())
    office.clear_faults()
    await send_all(office)

    rows = await ledger_rows(office)
    assert [row["state"] for row in rows] == [end, "SENT", WAITING, WAITING, WAITING]
    await office.reply("YES")
    await send_all(office)
    assert on_the_phone(office)[-1] == BORN


async def test_a_number_is_not_asked_again_a_day_after_a_question_that_may_still_arrive(office: PostOffice) -> None:
    await handle(office, Course().add())
    await grow_older(office, table="consent", column="asked_at", days=2)

    await handle(office, Course("Eve").add())
    await send_all(office)
    await handle(office, Course("Ida").add())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]


async def test_a_person_on_a_roster_from_before_is_asked_at_the_first_text(office: PostOffice) -> None:
    course = Course()
    await handle(office, course.add(), consent=Mode.ASSUMED)

    await handle(office, course.begin())
    await handle(office, course.announce())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    await office.reply("YES")
    await send_all(office)
    assert len(on_the_phone(office)) == 2


async def test_a_text_in_the_queue_is_not_superseded_by_a_newer_one_that_waits_for_consent(office: PostOffice) -> None:
    course = Course()
    await handle(office, course.add(), course.begin(), consent=Mode.ASSUMED)
    await handle(office, course.complete())

    await send_all(office)

    assert on_the_phone(office) == [BEGUN, ASKED.format("Ada")]


async def test_an_event_from_before_the_mothers_name_was_in_it_asks_without_her_name(office: PostOffice) -> None:
    await handle(office, Course("").add())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Someone you love")]


async def test_nothing_is_asked_and_nothing_waits_where_consent_is_assumed(office: PostOffice) -> None:
    course = Course()

    await handle(office, course.add(), course.complete(), consent=Mode.ASSUMED)
    await send_all(office)

    assert on_the_phone(office) == [BORN]
    assert await consent_of(office) is None


# YES


@pytest.mark.parametrize("answer", ["YES", " yes\n", "Yes!", "Start"])
async def test_on_yes_the_newest_text_goes_out_and_older_ones_are_superseded(office: PostOffice, answer: str) -> None:
    course = Course()
    await handle(office, course.add(), course.begin(), course.announce(), course.complete())
    await send_all(office)

    await office.reply(answer)
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BORN]
    assert [state for _, state in await states(office)] == ["SENT", "SUPERSEDED", "SUPERSEDED", "SENT"]
    assert await reasons(office, "notification.superseded") == ["a newer message to this person is sent instead"] * 2


async def test_consent_holds_for_every_later_text_and_for_other_labours(office: PostOffice) -> None:
    ada, eve = Course("Ada"), Course("Eve")
    await handle(office, ada.add())
    await send_all(office)
    await office.reply("YES")

    await handle(office, ada.begin(), eve.add(), eve.begin())
    await send_all(office)

    assert set(on_the_phone(office)) == {ASKED.format("Ada"), BEGUN, BEGUN.replace("Ada", "Eve")}


async def test_on_yes_the_newest_text_about_each_labour_goes_out(office: PostOffice) -> None:
    ada, eve = Course("Ada"), Course("Eve")
    await handle(office, ada.add(), eve.add(), ada.begin(), eve.begin(), ada.complete())

    await office.reply("YES")
    await send_all(office)

    assert set(on_the_phone(office)) == {ASKED.format("Ada"), BORN, BEGUN.replace("Ada", "Eve")}


async def test_a_text_has_its_turn_when_it_is_released_and_not_before_texts_that_were_in_the_queue(
    office: PostOffice,
) -> None:
    await handle(office, (course := Course()).add(), course.complete())
    await send_all(office)
    await handle(office, (other := Course("Eve")).add("+12025550199"), other.complete(), consent=Mode.ASSUMED)

    await office.reply("YES")

    async with office.units() as uow:
        rows = await uow.connection.fetch(
            "SELECT phone FROM notification WHERE state = 'PENDING' ORDER BY priority, turn"
        )
    assert [row["phone"] for row in rows] == ["+12025550199", PHONE]


async def test_a_person_who_was_removed_meanwhile_gets_nothing(office: PostOffice) -> None:
    course, person = Course(), uuid7()
    await handle(office, course.add(person_id=person), course.begin(), course.remove(person))

    await office.reply("YES")
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    assert await reasons(office, "notification.failed") == ["the person was removed from the list before they agreed"]


async def test_a_text_that_is_too_old_is_dropped_on_yes_and_a_newer_one_is_sent(office: PostOffice) -> None:
    course = Course()
    await handle(office, course.add(), course.begin())
    await send_all(office)  # the question
    await grow_older(office, days=3)
    await handle(office, course.complete())

    await office.reply("YES", validity=2 * DAY)
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BORN]
    assert await reasons(office, "notification.failed") == ["the person did not agree in time"]


async def test_yes_twice_is_yes(office: PostOffice) -> None:
    course = Course()
    await handle(office, course.add(), course.begin())
    await send_all(office)  # the question

    for _ in range(2):
        await office.reply("YES")
        await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BEGUN]


async def test_a_yes_from_a_number_that_was_never_asked_gives_nothing_away(office: PostOffice) -> None:
    await office.reply("YES")
    assert await consent_of(office) is None

    await handle(office, (course := Course()).add(), course.begin())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]


@pytest.mark.parametrize("answer", ["yes please", "no", "who is this?", ""])
async def test_any_other_answer_is_no_consent(office: PostOffice, answer: str) -> None:
    await handle(office, (course := Course()).add(), course.begin())

    await office.reply(answer)
    await send_all(office)

    assert (await consent_of(office), on_the_phone(office)) == ("ASKED", [ASKED.format("Ada")])


# STOP


async def test_on_stop_everything_that_waits_fails_with_a_reason_and_the_number_is_never_asked_again(
    office: PostOffice,
) -> None:
    course = Course()
    await handle(office, course.add(), course.begin(), course.complete())
    await send_all(office)

    await office.reply("STOP")
    await grow_older(office, table="consent", column="asked_at", days=400)
    await handle(office, (other := Course("Eve")).add(), other.begin())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    assert [state for _, state in await states(office)] == ["SENT", "FAILED", "FAILED", "FAILED"]
    assert await reasons(office, "notification.failed") == ["the person has opted out of messages"] * 3


async def test_a_number_that_stopped_may_start_again(office: PostOffice) -> None:
    await handle(office, (course := Course()).add())
    await send_all(office)
    for answer in ("STOP", "YES"):
        await office.reply(answer)

    await handle(office, course.begin())
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BEGUN]


async def test_an_opt_out_that_only_the_provider_knew_drops_what_waits(office: PostOffice) -> None:
    await handle(office, (course := Course()).add(), course.begin())
    office.fault("refused", code=21610, times=1)

    await send_all(office)

    assert await consent_of(office) == "REFUSED"
    assert [state for _, state in await states(office)] == ["FAILED", "FAILED"]
    assert len(await reasons(office, "notification.failed")) == 2


async def test_a_start_during_a_call_is_not_undone_by_the_refusal_of_that_call(office: PostOffice) -> None:
    """The refusal is about a STOP that the provider had before the call. It has the START by now."""
    await handle(office, (course := Course()).add())
    await send_all(office)
    await office.reply("YES")
    await handle(office, course.begin())
    office.fault("refused", code=21610, times=1)

    async with held_at(AFTER_CALL, office.dispatcher().run_once()):
        await office.reply("START")
    await handle(office, course.complete())
    await send_all(office)

    assert await consent_of(office) == "GRANTED"
    assert on_the_phone(office) == [ASKED.format("Ada"), BORN]


async def test_a_text_in_the_queue_is_not_sent_without_consent_however_it_came_there(office: PostOffice) -> None:
    one = notification()
    async with office.units() as uow:
        await ledger.insert_pending(uow, [one], consent_required=True)
        await uow.connection.execute("INSERT INTO consent (phone, state) VALUES ($1, 'ASKED')", PHONE)

    await send_all(office)

    assert (await office.state(one.id), on_the_phone(office)) == ("FAILED", [])


# No answer


async def test_a_text_without_an_answer_in_time_is_dropped_by_the_next_pass_and_no_other(office: PostOffice) -> None:
    course = Course()
    await handle(office, course.add(), course.begin())
    await grow_older(office, days=3)
    await handle(office, course.complete())

    await office.reconciler(consent_within=2 * DAY).run_once()

    assert await states(office) == [
        ("consent.requested", "PENDING"),
        ("labour.begun", "FAILED"),
        ("labour.completed", WAITING),
    ]
    assert await reasons(office, "notification.failed") == ["the person did not agree in time"]


async def test_an_answer_and_the_end_of_the_wait_read_only_what_waits(office: PostOffice) -> None:
    """Both use an index that has nothing but waiting messages, however many others there are."""
    async with office.units() as uow:
        await uow.connection.execute("SET LOCAL enable_seqscan = off")
        for statement, arguments in (
            (consents._RELEASE, (PHONE, DAY)),
            (consents._DROP, ([PHONE],)),
            (consents._EXPIRE, (DAY,)),
        ):
            plan = await uow.connection.fetch(f"EXPLAIN {statement}", *arguments)
            assert "notification_waiting" in str(plan), statement
        await uow.connection.execute("SET LOCAL enable_sort = off")
        assert "notification_question" in str(await uow.connection.fetch(f"EXPLAIN {consents._ASK}", [PHONE]))


# Settings and migration


def test_consent_is_required_outside_local_mode_and_cannot_be_assumed_there() -> None:
    given = {"NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://n:n@127.0.0.1:9/n"}

    assert ApiSettings.load({"FERN_MODE": "local", **given}).consent is Mode.ASSUMED
    assert ApiSettings.load({"FERN_MODE": "local", "SMS_CONSENT": "required", **given}).consent is Mode.REQUIRED
    live = {
        **given,
        "PUBSUB_PROJECT_ID": "fern",
        "OPERATOR_READ_TOKENS": "ada:" + "r" * 32,
        "OPERATOR_WRITE_TOKENS": "ada:" + "w" * 32,
        "PUBLIC_URL": "https://fern.example",
        "TWILIO_ACCOUNT_SID": "AC" + "1" * 32,
        "TWILIO_AUTH_TOKEN": "2e" * 16,
        "TWILIO_FROM": "+12025550100",
    }
    assert ApiSettings.load(live).consent is Mode.REQUIRED
    with pytest.raises(SettingsError, match="SMS_CONSENT=assumed is for local runs only"):
        ApiSettings.load({**live, "SMS_CONSENT": "assumed"})
    with pytest.raises(SettingsError, match="write one of assumed, required"):
        ApiSettings.load({**live, "SMS_CONSENT": "maybe"})
