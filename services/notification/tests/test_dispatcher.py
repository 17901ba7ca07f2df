"""Each pending message is sent once, by one dispatcher at a time and with nothing locked, and its event is emitted once."""

import asyncio
import contextlib
import time
from datetime import timedelta

import pytest
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from e2e.support.crash import crash_at
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging import clock
from messaging.database import connect_raw
from notification.delivery import dispatcher, recorder
from notification.domain.notification import Limits

from .sms_parts import PostOffice, held_at, notification


async def test_a_pending_message_is_sent_once_and_reported_once(office: PostOffice) -> None:
    one = await office.post_one()

    await office.dispatcher().run_once()
    await office.dispatcher().run_once()

    row = await office.row(one.id)
    assert (row["state"], row["attempt"], [row["sid"]]) == ("SENT", 1, office.texts(one))
    assert await office.events(one.id) == ["notification.sent"]


@pytest.mark.parametrize("days", [120, -120])
async def test_a_dispatcher_with_a_wrong_clock_sends_once_and_resolves_what_is_in_doubt(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch, days: int
) -> None:
    """Leases, pauses and the quarantine are the database's times. The event's time is, too."""
    monkeypatch.setattr(clock, "OFFSET", timedelta(days=days))
    doubtful = await office.post_one("+12025550177")
    assert await office.put_in_doubt(doubtful)
    sent = await office.post_one()

    await office.dispatcher().run_once()
    await office.reconciler().run_once()
    await office.dispatcher().run_once()

    for one in (sent, doubtful):
        assert [(await office.row(one.id))["sid"]] == office.texts(one)
        assert await office.events(one.id) == ["notification.sent"]
    async with office.units() as uow:
        times = await uow.connection.fetch("SELECT occurred_at, recorded_at FROM outbox")
    assert all(abs(occurred - recorded) < timedelta(hours=1) for occurred, recorded in times)


async def test_many_dispatchers_share_the_work_without_doubling_any(office: PostOffice) -> None:
    everyone = await office.post_many(60)

    counts = await asyncio.gather(*(office.dispatcher(in_flight=30).run_once() for _ in range(4)))

    assert sum(counts) == len(everyone)
    for one in everyone:
        assert len(office.texts(one)) == 1
        assert await office.events(one.id) == ["notification.sent"]


async def test_an_event_is_committed_with_the_transition_it_reports(office: PostOffice) -> None:
    """Row and event have the same xmin: one transaction of the database wrote them."""
    sent, refused = notification(), notification("+15005550009")
    await office.post(sent, refused)
    await office.dispatcher().run_once()

    async with office.units() as uow:
        same = await uow.connection.fetch(
            """SELECT n.id, n.xmin::text = o.xmin::text FROM notification n
               JOIN outbox o ON o.payload::jsonb ->> 'notification_id' = n.id::text"""
        )
        together = dict(tuple(row) for row in same)

    assert together == {sent.id: True, refused.id: True}


async def test_a_transition_that_is_not_committed_emits_no_event(office: PostOffice) -> None:
    one = await office.post_one()

    with crash_at(recorder.AFTER_RECORD):
        await office.dispatcher().run_once()

    assert await office.state(one.id) == "SENDING"
    assert await office.events(one.id) == []


# While the provider has not answered


async def test_no_transaction_and_no_lock_is_held_over_the_call(
    office: PostOffice, postgres: TemporaryServer, notification_engine: AsyncEngine
) -> None:
    database = notification_engine.url.database
    one = await office.post_one()
    office.fault("slow", seconds=60)
    calling = asyncio.create_task(office.dispatcher().run_once())
    async with contextlib.AsyncExitStack() as stack:
        stack.push_async_callback(asyncio.wait, [calling])
        stack.callback(calling.cancel)
        await eventually(lambda: _texts(office), lambda count: count == 1)

        admin = await connect_raw(postgres.url("postgres", "postgres"), process="look")
        stack.push_async_callback(admin.close)
        transactions = await admin.fetch(
            "SELECT state, query FROM pg_stat_activity WHERE datname = $1 AND xact_start IS NOT NULL", database
        )
        locks = await admin.fetch(
            "SELECT relation::regclass FROM pg_locks JOIN pg_database d ON d.oid = database WHERE d.datname = $1",
            database,
        )
        async with office.units() as uow:  # and another transaction can lock the row at once
            await uow.connection.execute("SELECT 1 FROM notification WHERE id = $1 FOR UPDATE NOWAIT", one.id)

        assert not calling.done()
        assert (transactions, locks) == ([], [])
        assert await office.state(one.id) == "SENDING"


async def _texts(office: PostOffice) -> int:
    return len(office.sms.sandbox.store.newest(None, 1000))


async def test_many_calls_are_under_way_at_once_and_not_more_than_allowed(office: PostOffice) -> None:
    await office.post_many(40)
    stop, sender = asyncio.Event(), office.dispatcher(in_flight=25)

    async with held_at(dispatcher.AFTER_CALL, sender.run(stop), tasks=25):  # 25 have called, and none of them has ended
        async with office.units() as uow:
            waiting = await uow.connection.fetchval("SELECT count(*) FROM notification WHERE state = 'PENDING'")
        assert (await _texts(office), waiting) == (25, 15)
        stop.set()

    assert await office.dispatcher().run_once() == 15


async def test_calls_under_way_are_finished_before_it_stops(office: PostOffice) -> None:
    one = await office.post_one()
    stop = asyncio.Event()

    async with held_at(dispatcher.AFTER_CALL, office.dispatcher().run(stop)):
        stop.set()

    assert await office.state(one.id) == "SENT"


async def test_a_call_that_takes_too_long_is_in_doubt_as_soon_as_its_dispatcher_has_stopped(office: PostOffice) -> None:
    office.fault("slow", seconds=60)
    one = await office.post_one()
    stop = asyncio.Event()
    running = asyncio.create_task(office.dispatcher(stop_limit=0.1, lease_seconds=120).run(stop))

    await eventually(lambda: _texts(office), lambda count: count == 1)
    stop.set()
    await running

    assert await office.state(one.id) == "IN_DOUBT"
    await office.reconciler(quarantine=60).run_once()
    assert await office.state(one.id) == "SENT"
    assert len(office.texts(one)) == 1


async def test_calls_a_second_are_limited(office: PostOffice) -> None:
    await office.post_many(20)
    sender, began, taken = office.dispatcher(limits=Limits(per_second=10)), time.monotonic(), 0

    async def take() -> int:
        nonlocal taken
        taken += len(await sender.take(50))
        assert taken <= 10 + 10 * (time.monotonic() - began)
        return taken

    assert await eventually(take, lambda taken: taken == 20) == 20


async def test_a_rate_may_be_less_than_one_a_second(office: PostOffice) -> None:
    one = await office.post_one()

    assert await office.dispatcher(limits=Limits(per_second=0.5)).run_once() == 1
    assert len(office.texts(one)) == 1


# Late dispatchers


async def test_a_dispatcher_that_was_paused_too_long_does_not_call(office: PostOffice) -> None:
    one = await office.post_one()

    async with held_at(dispatcher.AFTER_TAKE, office.dispatcher(lease_seconds=0.2, call_within=0.1).run_once()):
        await eventually(office.reconciler().run_once, lambda counts: counts.sent_again == 1)
        assert await office.dispatcher().run_once() == 1

    row = await office.row(one.id)
    assert (row["state"], row["attempt"], [row["sid"]]) == ("SENT", 2, office.texts(one))
    assert await office.events(one.id) == ["notification.sent"]


async def test_a_dispatcher_too_late_for_its_lease_returns_the_message_to_the_queue(office: PostOffice) -> None:
    one = await office.post_one()

    await office.dispatcher(call_within=-1.0).run_once()
    assert office.texts(one) == []

    assert await office.dispatcher().run_once() == 1
    assert len(office.texts(one)) == 1


async def test_a_late_outcome_of_an_older_attempt_changes_nothing(office: PostOffice) -> None:
    """The provider hides the first message for longer than the quarantine: two are sent, and the ledger stays consistent."""
    one = await office.post_one()
    office.fault("list-lag", seconds=3600, times=1)

    with capture_logs() as logs:
        async with held_at(dispatcher.AFTER_CALL, office.dispatcher(lease_seconds=0.2).run_once()):
            await eventually(office.reconciler().run_once, lambda counts: counts.sent_again == 1)
            await office.dispatcher().run_once()
            before = await office.row(one.id)

    assert await office.row(one.id) == before
    assert before["attempt"] == 2
    assert await office.events(one.id) == ["notification.sent"]
    assert "late sms outcome ignored" in [line["event"] for line in logs]  # the sandbox logs, too


async def test_a_dispatcher_whose_lease_expired_still_records_its_outcome(office: PostOffice) -> None:
    """The outcome resolves the message in doubt: nothing is asked, and nothing is sent twice."""
    one = await office.post_one()

    async with held_at(dispatcher.AFTER_CALL, office.dispatcher(lease_seconds=0.1).run_once()):
        await eventually(office.expire_leases, lambda count: count == 1)

    assert await office.state(one.id) == "SENT"
    assert await office.dispatcher().run_once() == 0
