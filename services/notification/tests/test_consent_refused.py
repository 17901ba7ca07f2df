"""Consent: what a STOP, a missing answer and the settings do."""

import pytest

from messaging.errors import SettingsError
from notification.delivery import consents, ledger
from notification.delivery.dispatcher import AFTER_CALL
from notification.domain.consent import Mode
from notification.settings import ApiSettings

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
    on_the_phone,
    reasons,
    send_all,
    states,
)
from .sms_parts import PHONE, PostOffice, held_at, notification

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
