"""What becomes of a message, by how the call ended: final, again later, again when a person has mended something, or in doubt."""

import asyncio
import contextlib
import random
from collections.abc import Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.database import connect_raw
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import callbacks, dispatcher, ledger

from .sms_parts import PHONE, Gate, PostOffice, client, notification, post_office


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    for point in (dispatcher.AFTER_TAKE, dispatcher.AFTER_CALL, dispatcher.AFTER_RECORD):
        point.disarm()


async def test_a_refusal_is_final_has_a_reason_and_is_never_repeated(office: PostOffice) -> None:
    for code in (21211, 21212, 21408, 21606, 21612, 21614, 21635, 21610):
        one = await office.post_one()
        office.fault("refused", code=code, times=1)

        await office.dispatcher().run_once()

        row = await office.row(one.id)
        assert (row["state"], row["failure_code"]) == ("FAILED", code)
        assert row["failure"]
        assert await office.news(one.id) == ["notification.failed"]
        assert await office.dispatcher().run_once() == 0
        assert (await office.reconciler().run_once()).sent_again == 0
        assert office.texts(one) == []


async def test_an_opt_out_holds_for_everything_later(office: PostOffice) -> None:
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


async def test_a_person_who_opts_in_again_is_not_shut_out_by_a_message_under_way(office: PostOffice) -> None:
    async with office.units() as uow:
        await ledger.suppress(uow.session, PHONE)
    await office.post_one()
    gate = Gate(dispatcher.AFTER_TAKE)
    sending = asyncio.create_task(office.dispatcher().run_once())
    await gate.full()

    async with office.units() as uow:
        await callbacks.apply_inbound(uow, phone=PHONE, body="START")
    gate.open()
    await sending

    assert await office.suppressed() == set()


async def test_wrong_credentials_stop_the_sender_loudly_and_lose_nothing(office: PostOffice) -> None:
    everyone = [notification(f"+1202555{number:04}") for number in range(100, 110)]
    await office.post(*everyone)

    async with client(office.sms.url, token="wrong") as stranger:
        sender = office.dispatcher(stranger)
        with capture_logs() as logs:
            assert await sender.run_once() == len(everyone)
        assert await sender.take(50) == [], "it has stopped"

    alarms = [line["event"] for line in logs if line["log_level"] == "critical"]
    assert set(alarms) == {"sending stopped: check TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN"}
    assert len(alarms) < len(everyone), "said once, not by each call that was under way"
    for one in everyone:
        row = await office.row(one.id)
        assert (row["state"], row["failure"]) == ("PENDING", "the provider does not accept our account (error 20003)")
        assert await office.news(one.id) == []

    assert await office.dispatcher().run_once() == len(everyone)
    for one in everyone:
        assert len(office.texts(one)) == 1


async def test_after_wrong_credentials_one_message_tries_before_all_the_others(office: PostOffice) -> None:
    await office.post(*(notification(f"+1202555{number:04}") for number in range(100, 110)))

    async with client(office.sms.url, token="wrong") as stranger:
        sender = office.dispatcher(stranger, in_flight=1)
        await sender.run_once()
        retried = await eventually(lambda: sender.take(50), lambda leases: bool(leases))

    assert len(retried) == 1


async def test_slow_down_is_heeded_with_a_wait_that_differs_from_message_to_message(office: PostOffice) -> None:
    random.seed(1)
    everyone = [notification(f"+1202555{number:04}") for number in range(100, 110)]
    await office.post(*everyone)
    office.fault("rate-limited")

    await office.dispatcher().run_once()

    assert await office.dispatcher().run_once() == 0
    waits = [await _wait(office, one.id) for one in everyone]
    assert all(0.5 <= wait <= 10 for wait in waits)
    assert max(waits) - min(waits) > 0.2, "they must not come back all together"

    office.mend()
    await eventually(office.dispatcher().run_once, lambda _: all(office.texts(one) for one in everyone))
    assert all(len(office.texts(one)) == 1 for one in everyone)


async def test_a_full_queue_at_the_provider_is_left_alone_for_minutes(office: PostOffice) -> None:
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
    async with post_office(notification_units, tmp_path / "sms", timeout=1.0) as office:
        one = await office.post_one()
        office.fault(name)

        await office.dispatcher().run_once()

        row = await office.row(one.id)
        assert row["state"] == "IN_DOUBT"
        assert row["in_doubt_at"] is not None
        assert await office.dispatcher().run_once() == 0
        assert await office.news(one.id) == []


async def test_an_outcome_survives_a_database_that_is_away(
    notification_engine: AsyncEngine, notification_units: UnitsOfWork, office: PostOffice, postgres: TemporaryServer
) -> None:
    """The answer of the provider is known; it is recorded as soon as the database is back."""
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_CALL)
    sending = asyncio.create_task(office.dispatcher().run_once())
    await gate.full()

    admin = await connect_raw(postgres.url("postgres", "postgres"), process="cut")
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", notification_engine.url.database
    )
    await admin.close()
    gate.open()
    await sending

    assert await eventually(lambda: _state(office, one.id), lambda state: state == "SENT")
    assert office.texts(one) == [(await office.row(one.id))["sid"]]


async def _state(office: PostOffice, notification_id: UUID) -> str | None:
    with contextlib.suppress(Exception):  # the pool may still hold connections that were cut
        return await office.state(notification_id)
    return None
