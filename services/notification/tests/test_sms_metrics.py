"""What becomes of each SMS is in the metrics of the process that did it."""

import pytest
from msgspec.structs import replace
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support import metrics
from e2e.support.metrics import value
from messaging.backlog import read_once
from messaging.database import driver_connection, transaction
from notification.delivery import backlog

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
