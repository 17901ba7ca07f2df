"""Consent: a number gets one question and nothing else until its owner says YES, and nothing at all after STOP."""

import pytest
from uuid_utils.compat import uuid7

from notification.delivery import consents
from notification.domain.consent import Mode

from .consent_parts import (
    ASKED,
    BEGUN,
    BORN,
    DAY,
    WAITING,
    Course,
    consent_of,
    grow_older,
    handle,
    ledger_rows,
    on_the_phone,
    reasons,
    send_all,
    states,
)
from .sms_parts import PHONE, PostOffice

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
