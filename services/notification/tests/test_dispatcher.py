"""Each pending message is sent once, by one sender at a time, with nothing locked meanwhile, and its news told once."""

import asyncio
import contextlib
import time
from collections.abc import Iterator
from uuid import UUID

import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.database import connect_raw
from notification.delivery import dispatcher, ledger

from .sms_parts import Gate, PostOffice, notification


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    yield
    for point in (dispatcher.AFTER_TAKE, dispatcher.AFTER_CALL, dispatcher.AFTER_RECORD):
        point.disarm()


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
        stack.push_async_callback(asyncio.wait, [calling])
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
    gate = Gate(dispatcher.AFTER_CALL, holds=25)
    stop, sender = asyncio.Event(), office.dispatcher(in_flight=25)
    running = asyncio.create_task(sender.run(stop))

    await gate.full()  # 25 have called, and none of them has ended
    async with office.units() as uow:
        waiting = await uow.session.scalar(text("SELECT count(*) FROM notification WHERE state = 'PENDING'"))
    assert (await _texts(office), waiting, await sender.take(25 - gate.held)) == (25, 15, [])

    gate.open()
    await eventually(lambda: _texts(office), lambda count: count == 40)
    stop.set()
    await running


async def test_calls_under_way_are_finished_before_it_stops(office: PostOffice) -> None:
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_CALL)
    stop = asyncio.Event()
    running = asyncio.create_task(office.dispatcher().run(stop))
    await gate.full()

    stop.set()
    gate.open()
    await running

    assert await office.state(one.id) == "SENT"


async def test_a_call_that_takes_too_long_is_in_doubt_as_soon_as_its_sender_has_stopped(office: PostOffice) -> None:
    office.fault("slow", seconds=60)
    one = await office.post_one()
    stop = asyncio.Event()
    running = asyncio.create_task(office.dispatcher(stop_limit=0.1, lease_seconds=120).run(stop))

    async def texts() -> list[str]:
        return office.texts(one)

    await eventually(texts, lambda sids: len(sids) == 1)
    stop.set()
    await running

    assert await office.state(one.id) == "IN_DOUBT"
    await office.reconciler(quarantine=60).run_once()
    assert await office.state(one.id) == "SENT"
    assert len(office.texts(one)) == 1


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
    await gate.full()

    await eventually(office.reconciler().run_once, lambda settled: settled.sent_again == 1)
    assert await office.dispatcher().run_once() == 1
    gate.open()
    await paused

    row = await office.row(one.id)
    assert (row["state"], row["attempt"], [row["sid"]]) == ("SENT", 2, office.texts(one))
    assert await office.news(one.id) == ["notification.sent"]


async def test_a_sender_too_late_for_its_lease_gives_the_message_back_at_once(office: PostOffice) -> None:
    one = await office.post_one()
    gate = Gate(dispatcher.AFTER_TAKE)
    paused = asyncio.create_task(office.dispatcher(call_within=0.0).run_once())
    await gate.full()
    gate.open()
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
    await gate.full()
    await eventually(office.reconciler().run_once, lambda settled: settled.sent_again == 1)
    await office.dispatcher().run_once()
    before = await office.row(one.id)

    gate.open()
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
    await gate.full()
    await eventually(lambda: _expire(office), lambda count: count == 1)

    gate.open()
    await late

    assert await office.state(one.id) == "SENT"
    assert await office.dispatcher().run_once() == 0


async def _expire(office: PostOffice) -> int:
    async with office.units() as uow:
        return await ledger.expire_leases(uow.session)
