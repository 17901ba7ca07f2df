"""Each pending message is sent once, by one sender at a time, with nothing locked meanwhile, and its news told once."""

import asyncio
import contextlib
import random
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from fern.postgres import TemporaryServer
from messaging.database import connect_raw
from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification import callbacks, dispatcher, ledger

from .sms_parts import PHONE, PostOffice, client, eventually, notification, post_office


@pytest.fixture
async def office(notification_units: UnitsOfWork, tmp_path: Path) -> AsyncIterator[PostOffice]:
    async with post_office(notification_units, tmp_path / "sms") as office:
        yield office


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    for point in (dispatcher.AFTER_TAKE, dispatcher.AFTER_CALL, dispatcher.AFTER_RECORD):
        point.disarm()


class Gate:
    """Holds the first that comes to a fault point until it is opened; whoever comes later passes."""

    def __init__(self, point: FaultPoint) -> None:
        self.reached, self.opened = asyncio.Event(), asyncio.Event()
        point.arm(self._hold)

    async def _hold(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.opened.wait()


async def test_a_pending_message_is_sent_once_and_told_once(office: PostOffice) -> None:
    one = await office.post_one()

    await office.dispatcher().run_once()
    await office.dispatcher().run_once()

    row = await office.row(one.id)
    assert (row["state"], row["attempt"], [row["sid"]]) == ("SENT", 1, office.texts(one))
    assert await office.news(one.id) == ["notification.sent"]


async def test_many_dispatchers_share_the_work_without_doubling_any(office: PostOffice) -> None:
    everyone = [notification(f"+1202555{number:04}") for number in range(100, 160)]
    await office.post(*everyone)

    counts = await asyncio.gather(*(office.dispatcher(in_flight=30).run_once() for _ in range(4)))

    assert sum(counts) == len(everyone)
    for one in everyone:
        assert len(office.texts(one)) == 1
        assert await office.news(one.id) == ["notification.sent"]


async def test_the_news_is_committed_with_the_step_it_tells(office: PostOffice) -> None:
    """Row and event were written by the same transaction of the database: their xmin is the same."""
    sent, refused = notification(), notification("+15005550009")
    await office.post(sent, refused)
    await office.dispatcher().run_once()

    async with office.units() as uow:
        same = await uow.session.execute(
            text("""SELECT n.id, n.xmin::text = o.xmin::text AS same FROM notification n
                    JOIN outbox o ON o.payload::jsonb ->> 'notification_id' = n.id::text""")
        )
        together = {row.id: row.same for row in same}

    assert together == {sent.id: True, refused.id: True}


async def test_a_step_that_is_not_committed_tells_nothing(office: PostOffice) -> None:
    one = await office.post_one()

    class PowerCut(BaseException):
        pass

    async def cut() -> None:
        raise PowerCut

    dispatcher.AFTER_RECORD.arm(cut)
    with pytest.raises(PowerCut):
        await office.dispatcher().run_once()

    assert await office.state(one.id) == "SENDING"
    assert await office.news(one.id) == []


# While the provider has not answered


async def test_no_transaction_and_no_lock_is_held_over_the_call(
    office: PostOffice, postgres: TemporaryServer, notification_engine: AsyncEngine
) -> None:
    database = notification_engine.url.database
    one = await office.post_one()
    office.fault("slow", seconds=60)
    calling = asyncio.create_task(office.dispatcher().run_once())
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(calling.cancel)
        await eventually(lambda: _texts(office, one.id), lambda count: count == 1)

        admin = await connect_raw(postgres.url("postgres", "postgres"), process="look")
        stack.push_async_callback(admin.close)
        transactions = await admin.fetch(
            "SELECT state, query FROM pg_stat_activity WHERE datname = $1 AND xact_start IS NOT NULL", database
        )
        locks = await admin.fetch(
            "SELECT relation::regclass FROM pg_locks JOIN pg_database d ON d.oid = database WHERE d.datname = $1",
            database,
        )
        async with office.units() as uow:  # and the row itself can be locked by anybody, at once
            await uow.session.execute(
                text("SELECT 1 FROM notification WHERE id = :id FOR UPDATE NOWAIT"), {"id": one.id}
            )

        assert not calling.done()
        assert (transactions, locks) == ([], [])
        assert await office.state(one.id) == "SENDING"


async def _texts(office: PostOffice, *ids: UUID) -> int:
    return len(office.sms.sandbox.store.newest(None, 1000))


async def test_many_calls_are_under_way_at_once_and_not_more_than_allowed(office: PostOffice) -> None:
    await office.post(*(notification(f"+1202555{number:04}") for number in range(100, 140)))
    office.fault("slow", seconds=60)  # so none of the calls ends
    stop, sender = asyncio.Event(), office.dispatcher(in_flight=25)
    running = asyncio.create_task(sender.run(stop))

    await eventually(lambda: _texts(office), lambda count: count >= 25)
    for _ in range(3):  # woken, it looks for room, and finds none
        sender.wake()
        await asyncio.sleep(0)
    async with office.units() as uow:
        waiting = await uow.session.scalar(text("SELECT count(*) FROM notification WHERE state = 'PENDING'"))

    assert (await _texts(office), waiting) == (25, 15)
    running.cancel()


async def test_calls_under_way_are_finished_before_it_stops(office: PostOffice) -> None:
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_CALL)
    stop = asyncio.Event()
    running = asyncio.create_task(office.dispatcher().run(stop))
    await gate.reached.wait()

    stop.set()
    gate.opened.set()
    await running

    assert await office.state(one.id) == "SENT"


async def test_calls_a_second_are_limited(office: PostOffice) -> None:
    await office.post(*(notification(f"+1202555{number:04}") for number in range(100, 120)))
    sender, began, taken = office.dispatcher(per_second=10), time.monotonic(), 0

    async def take() -> int:
        nonlocal taken
        taken += len(await sender.take(50))
        assert taken <= 10 + 10 * (time.monotonic() - began)
        return taken

    assert await eventually(take, lambda taken: taken == 20) == 20


async def test_less_than_one_a_second_is_a_rate_too(office: PostOffice) -> None:
    one = await office.post_one()

    assert await office.dispatcher(per_second=0.5).run_once() == 1
    assert len(office.texts(one)) == 1


# Late senders


async def test_a_sender_that_was_paused_too_long_does_not_call(office: PostOffice) -> None:
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_TAKE)
    paused = asyncio.create_task(office.dispatcher(lease_seconds=0.2, call_within=0.1).run_once())
    await gate.reached.wait()

    await eventually(office.reconciler().run_once, lambda settled: settled.sent_again == 1)
    assert await office.dispatcher().run_once() == 1
    gate.opened.set()
    await paused

    row = await office.row(one.id)
    assert (row["state"], row["attempt"], [row["sid"]]) == ("SENT", 2, office.texts(one))
    assert await office.news(one.id) == ["notification.sent"]


async def test_a_sender_too_late_for_its_lease_gives_the_message_back_at_once(office: PostOffice) -> None:
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_TAKE)
    paused = asyncio.create_task(office.dispatcher(call_within=0.0).run_once())
    await gate.reached.wait()
    gate.opened.set()
    await paused
    assert office.texts(one) == []

    assert await office.dispatcher().run_once() == 1

    assert len(office.texts(one)) == 1


async def test_a_late_outcome_of_an_older_attempt_changes_nothing(office: PostOffice) -> None:
    """The provider hid the first message for longer than the quarantine: two texts are out. The ledger stays consistent."""
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_CALL)
    office.fault("list-lag", seconds=3600, times=1)
    late = asyncio.create_task(office.dispatcher(lease_seconds=0.2).run_once())
    await gate.reached.wait()
    await eventually(office.reconciler().run_once, lambda settled: settled.sent_again == 1)
    await office.dispatcher().run_once()
    before = await office.row(one.id)

    gate.opened.set()
    with capture_logs() as logs:
        await late

    assert await office.row(one.id) == before
    assert before["attempt"] == 2
    assert await office.news(one.id) == ["notification.sent"]
    assert "sms attempt was overtaken" in [line["event"] for line in logs]


async def test_a_sender_whose_lease_ran_out_still_reports_what_it_knows(office: PostOffice) -> None:
    """Its answer settles the doubt: no need to ask, no way to send twice."""
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_CALL)
    late = asyncio.create_task(office.dispatcher(lease_seconds=0.1).run_once())
    await gate.reached.wait()
    await eventually(lambda: _expire(office), lambda count: count == 1)

    gate.opened.set()
    await late

    assert await office.state(one.id) == "SENT"
    assert await office.dispatcher().run_once() == 0


async def _expire(office: PostOffice) -> int:
    async with office.units() as uow:
        return await ledger.expire_leases(uow.session)


# Outcomes


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
    await gate.reached.wait()

    async with office.units() as uow:
        await callbacks.apply_inbound(uow, phone=PHONE, body="START")
    gate.opened.set()
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
    await gate.reached.wait()

    admin = await connect_raw(postgres.url("postgres", "postgres"), process="cut")
    await admin.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", notification_engine.url.database
    )
    await admin.close()
    gate.opened.set()
    await sending

    assert await eventually(lambda: _state(office, one.id), lambda state: state == "SENT")
    assert office.texts(one) == [(await office.row(one.id))["sid"]]


async def _state(office: PostOffice, notification_id: UUID) -> str | None:
    with contextlib.suppress(Exception):  # the pool may still hold connections that were cut
        return await office.state(notification_id)
    return None
