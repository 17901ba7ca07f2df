"""What becomes of each SMS is in the metrics of the process that did it."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support import metrics
from e2e.support.metrics import value
from messaging.backlog import read_once
from messaging.database import driver_connection, transaction
from messaging.retention import first_id
from notification.delivery import backlog

from .consent_parts import Course, handle, send_all
from .sms_parts import SID, PostOffice, client, notification


@pytest.fixture(autouse=True)
def recorded() -> None:
    metrics.record()


def attempts(outcome: str) -> float:
    return value("fern_sms_attempts_total", outcome=outcome)


def moved(state: str) -> float:
    return value("fern_sms_transitions_total", state=state)


def told(event_type: str, **bucket: str) -> float:
    suffix = "bucket" if bucket else "count"
    return value(f"fern_tap_to_sms_seconds_{suffix}", event_type=event_type, **bucket)


def id_from_before(**ago: int) -> UUID:
    """A UUIDv7 of that long ago."""
    return UUID(int=first_id(datetime.now(UTC) - timedelta(**ago)).int | 7 << 76 | 8 << 60)


async def test_an_accepted_message_is_counted_with_the_time_since_the_event(office: PostOffice) -> None:
    before = attempts("accepted"), moved("SENT"), told("labour.completed"), told("labour.completed", le="60.0")
    await office.post(notification(event_type="labour.completed"))

    await office.dispatcher().run_once()

    now = attempts("accepted"), moved("SENT"), told("labour.completed"), told("labour.completed", le="60.0")
    assert [after - then for after, then in zip(now, before, strict=True)] == [1, 1, 1, 1]


async def test_the_time_since_the_event_names_the_trace_if_that_is_sampled(
    office: PostOffice, monkeypatch: pytest.MonkeyPatch
) -> None:
    traces = metrics.examples(monkeypatch, "_tap_to_sms")
    for trace, flags in (("a", "01"), ("b", "00")):
        await office.post(replace(notification(), traceparent=f"00-{trace * 32}-{'1' * 16}-{flags}"))

    await office.dispatcher().run_once()

    assert traces() == ["a" * 32]


async def test_each_outcome_of_an_attempt_has_its_own_count(office: PostOffice) -> None:
    before = {one: attempts(one) for one in ("accepted", "refused", "not_sent", "misconfigured", "unknown")}

    await office.post(notification("+15005550001"))  # the sandbox refuses this number, as Twilio's test accounts do
    await office.dispatcher().run_once()
    office.fault("reply-lost", rate=1.0)
    await office.post(notification())
    await office.dispatcher().run_once()
    office.clear_faults()
    await office.post(notification())
    async with client("http://127.0.0.1:9") as unreachable:
        await office.dispatcher(unreachable).run_once()

    counted = {one: attempts(one) - count for one, count in before.items()}
    assert counted == {"accepted": 0, "refused": 1, "not_sent": 1, "misconfigured": 0, "unknown": 1}


async def test_a_second_message_that_the_provider_delivers_is_counted_once(office: PostOffice) -> None:
    one = await office.post_one()
    await office.dispatcher().run_once()
    ours = (await office.row(one.id))["sid"]
    before = value("fern_sms_doubled_total")

    await office.callback(one.id, "delivered", sid=ours)
    assert value("fern_sms_doubled_total") == before
    for status in ("sent", "delivered"):
        await office.callback(one.id, status, sid=SID)

    assert value("fern_sms_doubled_total") == before + 1


async def test_the_backlog_of_the_ledger_is_read_with_its_ages(
    office: PostOffice, notification_engine: AsyncEngine
) -> None:
    assert await office.put_in_doubt(await office.post_one())
    await office.post_many(3)
    async with driver_connection(notification_engine) as connection:
        await connection.execute("UPDATE notification SET created_at = clock_timestamp() - interval '1 hour'")
        await connection.execute("""
            UPDATE notification SET in_doubt_at = clock_timestamp() - interval '2 hours' WHERE state = 'IN_DOUBT'""")

    await read_once(notification_engine, backlog.read)

    assert value("fern_notification_in_doubt", service="tests") == 1
    assert value("fern_notification_pending", service="tests") == 3
    assert 7200 <= value("fern_notification_oldest_in_doubt_seconds", service="tests") < 7300
    assert 3600 <= value("fern_notification_oldest_pending_seconds", service="tests") < 3700


async def test_a_message_that_is_sent_more_than_a_minute_after_its_event_is_late(office: PostOffice) -> None:
    before = value("fern_sms_late_total")
    await office.post_one()
    await office.dispatcher().run_once()
    assert value("fern_sms_late_total") == before
    await office.post_one()
    async with office.units() as uow:
        moved = "UPDATE notification SET event_id = $1 WHERE state = 'PENDING'"
        assert await uow.connection.execute(moved, id_from_before(minutes=2)) == "UPDATE 1"
    await office.dispatcher().run_once()

    assert value("fern_sms_late_total") == before + 1


async def test_the_time_that_a_message_waits_for_consent_is_not_measured(
    office: PostOffice, notification_engine: AsyncEngine
) -> None:
    before = told("labour.begun"), told("labour.begun", le="60.0"), value("fern_sms_late_total")
    course = Course()
    await handle(office, course.add())
    await send_all(office)
    await handle(office, course.begin())
    async with office.units() as uow:
        await uow.connection.execute(
            """UPDATE notification SET event_id = $1, created_at = created_at - interval '2 hours'
            WHERE state = 'AWAITING_CONSENT'""",
            id_from_before(hours=2),
        )

    await office.reply("YES", validity=86400)

    await read_once(notification_engine, backlog.read)
    assert value("fern_notification_pending", service="tests") == 1
    assert value("fern_notification_oldest_pending_seconds", service="tests") < 60
    await send_all(office)
    assert [told("labour.begun") - before[0], told("labour.begun", le="60.0") - before[1]] == [1, 1]
    assert value("fern_sms_late_total") == before[2]


async def test_a_message_that_is_put_back_is_as_old_as_before(
    office: PostOffice, notification_engine: AsyncEngine
) -> None:
    course = Course()
    await handle(office, course.add())
    await send_all(office)
    await handle(office, course.begin())
    await office.reply("YES")
    hour_ago = "clock_timestamp() - interval '1 hour'"
    async with office.units() as uow:
        await uow.connection.execute(f"UPDATE notification SET released_at = {hour_ago} WHERE state = 'PENDING'")

    async with client("http://127.0.0.1:9") as unreachable:
        await office.dispatcher(unreachable).run_once()

    async with office.units() as uow:
        put_back = f"UPDATE notification SET next_attempt_at = {hour_ago} WHERE state = 'PENDING' AND attempt = 1"
        assert await uow.connection.execute(put_back) == "UPDATE 1"
    await read_once(notification_engine, backlog.read)
    assert 3600 <= value("fern_notification_oldest_pending_seconds", service="tests") < 3700


@pytest.mark.parametrize("waiting", [0, 300])
async def test_no_number_of_the_ledger_reads_the_whole_table(
    office: PostOffice, notification_engine: AsyncEngine, waiting: int
) -> None:
    await office.post_many(300)
    async with driver_connection(notification_engine) as connection, transaction(connection):
        await connection.execute("UPDATE notification SET state = 'DELIVERED'")
    if waiting:
        await office.post_many(waiting)

    async with driver_connection(notification_engine) as connection, transaction(connection):
        await connection.execute("SET LOCAL enable_seqscan = off")
        plans = {
            name: "\n".join(row[0] for row in await connection.fetch(f"EXPLAIN {statement}"))
            for name, statement in (("turn", backlog.PENDING), ("in_doubt", backlog.IN_DOUBT))
        }

    for index, plan in plans.items():
        assert "Seq Scan" not in plan
        assert f"notification_{index}" in plan
