"""The state of a message after each outcome of a call: final, to be sent later, waiting for other credentials, or in doubt."""

import contextlib
import random
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from contracts.ids import derived_id
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.backoff import Backoff
from messaging.database import connect_raw
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import dispatcher, ledger
from notification.domain.transitions import record_sent

from .sms_parts import PHONE, PostOffice, client, held_at, notification, post_office


async def test_a_refusal_is_final_has_a_reason_and_is_never_repeated(office: PostOffice) -> None:
    for code in (21211, 21212, 21408, 21606, 21612, 21614, 21635, 21610):
        one = await office.post_one()
        office.fault("refused", code=code, times=1)

        await office.dispatcher().run_once()

        row = await office.row(one.id)
        assert (row["state"], row["failure_code"]) == ("FAILED", code)
        assert row["failure"]
        assert await office.events(one.id) == ["notification.failed"]
        assert derived_id(one.id, "notification.failed") in await office.event_ids()
        assert await office.dispatcher().run_once() == 0
        assert (await office.reconciler().run_once()).sent_again == 0
        assert office.texts(one) == []


async def test_an_opt_out_holds_for_every_later_message(office: PostOffice) -> None:
    refused = await office.post_one()
    office.fault("refused", code=21610, times=1)
    await office.dispatcher().run_once()
    assert await office.suppressed() == {PHONE}

    later, other = notification(PHONE), notification("+12125550123")
    await office.post(later, other)
    await office.dispatcher().run_once()

    assert await office.state(refused.id) == await office.state(later.id) == "FAILED"
    assert (await office.row(later.id))["failure"] == "the person has opted out of messages"
    assert office.texts(later) == [], "the provider was not even called"
    assert await office.state(other.id) == "SENT"


async def test_a_number_of_a_country_that_is_no_longer_listed_is_not_called(office: PostOffice) -> None:
    """Also if it was added, and the message was queued, before the list was made shorter."""
    irish, american, satellite = await office.post(
        notification("+353851234567"), notification("+12125550123"), notification("+881612345678")
    )

    await office.dispatcher(countries={"IE"}).run_once()

    assert await office.state(irish.id) == "SENT"
    for one in (american, satellite):
        assert (await office.row(one.id))["failure"] == "numbers of this country are not texted"
        assert await office.events(one.id) == ["notification.failed"]
        assert office.texts(one) == []


async def test_an_opt_in_is_not_undone_by_a_message_under_way(office: PostOffice) -> None:
    await office.reply("STOP")
    await office.post_one()

    async with held_at(dispatcher.AFTER_TAKE, office.dispatcher().run_once()):
        await office.reply("START")

    assert await office.suppressed() == set()


async def test_wrong_credentials_pause_all_sending_and_lose_nothing(office: PostOffice) -> None:
    everyone = await office.post_many(10)

    async with client(office.sms.url, token="wrong") as stranger:
        sender = office.dispatcher(stranger)
        sender._credentials_backoff = Backoff(base=60.0, cap=60.0)  # longer than ten calls can take
        with capture_logs() as logs:
            assert await sender.run_once() == len(everyone)
        assert await sender.take(50) == [], "it has paused"

    alarms = [line["event"] for line in logs if line["log_level"] == "critical"]
    assert set(alarms) == {"sending stopped: check TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN"}
    assert len(alarms) < len(everyone), "logged once, not by each call that was under way"
    for one in everyone:
        row = await office.row(one.id)
        assert (row["state"], row["failure"]) == ("PENDING", "the provider does not accept our account (error 20003)")
        assert await office.events(one.id) == []

    assert await office.dispatcher().run_once() == len(everyone)
    for one in everyone:
        assert len(office.texts(one)) == 1


async def test_after_wrong_credentials_one_message_is_tried_before_all_the_others(office: PostOffice) -> None:
    await office.post_many(10)

    async with client(office.sms.url, token="wrong") as stranger:
        sender = office.dispatcher(stranger, in_flight=1)
        await sender.run_once()
        retried = await eventually(lambda: sender.take(50), lambda leases: bool(leases))

    assert len(retried) == 1


async def test_after_too_many_requests_each_message_waits_for_a_different_time(office: PostOffice) -> None:
    random.seed(1)
    everyone = await office.post_many(10)
    office.fault("rate-limited")

    await office.dispatcher().run_once()

    waits = [await _wait(office, one.id) for one in everyone]
    assert all(1.5 <= wait <= 30 for wait in waits)
    assert max(waits) - min(waits) > 0.2, "they must not be sent again all at once"

    office.clear_faults()
    await eventually(office.dispatcher().run_once, lambda _: all(office.texts(one) for one in everyone))
    assert all(len(office.texts(one)) == 1 for one in everyone)


async def test_a_full_queue_at_the_provider_is_tried_again_after_minutes(office: PostOffice) -> None:
    one = await office.post_one()

    async with client(office.sms.url, sender="+15005550008") as sender:
        await office.dispatcher(sender).run_once()

    assert await office.state(one.id) == "PENDING"
    assert await _wait(office, one.id) >= 60


async def _wait(office: PostOffice, notification_id: UUID) -> float:
    """Seconds between the taking of the message and its next attempt."""
    row = await office.row(notification_id)
    return float((row["next_attempt_at"] - row["sending_at"]).total_seconds())


@pytest.mark.parametrize("name", ["request-lost", "reply-lost", "created-500", "created-late", "slow"])
async def test_an_unknown_outcome_is_in_doubt_and_not_sent_again(
    notification_units: UnitsOfWork, tmp_path: Path, name: str
) -> None:
    async with post_office(notification_units, tmp_path / "sms", timeout=3.0) as office:
        one = await office.post_one()
        office.fault(name)

        await office.dispatcher().run_once()

        row = await office.row(one.id)
        assert row["state"] == "IN_DOUBT"
        assert row["in_doubt_at"] is not None
        assert await office.dispatcher().run_once() == 0
        assert await office.events(one.id) == []


async def test_an_outcome_is_recorded_after_the_database_was_unavailable(
    notification_engine: AsyncEngine, notification_units: UnitsOfWork, office: PostOffice, postgres: TemporaryServer
) -> None:
    """The dispatcher keeps the provider's answer and records it as soon as the database is back."""
    one = await office.post_one()

    async with held_at(dispatcher.AFTER_CALL, office.dispatcher().run_once()):
        admin = await connect_raw(postgres.url("postgres", "postgres"), process="cut")
        cut = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1"
        await admin.execute(cut, notification_engine.url.database)
        await admin.close()

    assert await eventually(lambda: _state(office, one.id), lambda state: state == "SENT")
    assert office.texts(one) == [(await office.row(one.id))["sid"]]


async def _state(office: PostOffice, notification_id: UUID) -> str | None:
    with contextlib.suppress(Exception):  # the pool may still hold connections that were cut
        return await office.state(notification_id)
    return None


async def test_a_status_event_is_in_the_outbox_once_however_often_it_is_caused(office: PostOffice) -> None:
    one = await office.post_one()
    await office.dispatcher().run_once()
    async with office.units() as uow:  # as no part of ours does
        await uow.connection.execute("UPDATE notification SET state = 'SENDING' WHERE id = $1", one.id)

    async with office.units() as uow:
        assert await ledger.apply_one(uow, record_sent(one.id, sid="SM" + "0" * 32))

    assert await office.events(one.id) == ["notification.sent"]
    assert await office.event_ids() == {derived_id(one.id, "notification.sent")}
