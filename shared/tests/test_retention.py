"""Old claims and published events are deleted in time, under load, and none that a replay could still need."""

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import httpx
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from e2e.support.api import OPERATOR, async_client
from e2e.support.http_server import served
from e2e.support.sample_events import Happened, emit
from e2e.support.waiting import eventually
from labour.app import build as build_labour
from labour.settings import ApiSettings as LabourSettings
from messaging import claims
from messaging.claims import Claim
from messaging.database import driver_connection
from messaging.errors import RetentionTooShort
from messaging.retention import Month, Retention, first_id
from messaging.unit_of_work import UnitsOfWork

KEEP = timedelta(days=90)
NOW = datetime(2031, 5, 20, tzinfo=UTC)


def an_id(at: datetime, number: int = 0) -> UUID:
    return UUID(int=first_id(at).int | (7 << 76) | (2 << 62) | number)


async def partitions(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("SELECT inhrelid::regclass::text FROM pg_inherits WHERE inhparent = 'processed_event'::regclass")
        )
        return sorted(rows.scalars())


async def completed(engine: AsyncEngine, *event_ids: UUID) -> None:
    async with driver_connection(engine) as connection, connection.transaction():
        await claims.claim(connection, "tests", event_ids)
        await claims.complete(connection, "tests", event_ids)


async def outcome(engine: AsyncEngine, event_id: UUID) -> Claim:
    """The outcome that a claim of the event would have. The claim is rolled back."""
    async with driver_connection(engine) as connection:
        transaction = connection.transaction()
        await transaction.start()
        claimed = await claims.claim(connection, "tests", [event_id])
        await transaction.rollback()
        return claimed[event_id]


def test_a_retention_shorter_than_the_replay_horizon_is_refused(labour_engine: AsyncEngine) -> None:
    with pytest.raises(RetentionTooShort, match="RETENTION_DAYS to 30"):
        Retention(labour_engine, keep=timedelta(days=29), replay_horizon=timedelta(days=30))


async def test_a_migrated_database_has_this_months_partition_and_the_next_three(labour_engine: AsyncEngine) -> None:
    month, names = Month.of(datetime.now(UTC)), list[str]()
    for _ in range(4):
        names.append(month.name)
        month = month.next()

    assert await partitions(labour_engine) == sorted([*names, "processed_event_default"])


async def test_claims_in_the_default_partition_move_when_their_month_gets_its_own_and_still_count(
    labour_engine: AsyncEngine,
) -> None:
    event_id = an_id(NOW)
    await completed(labour_engine, event_id)

    report = await Retention(labour_engine, keep=KEEP, replay_horizon=KEEP).run_once(NOW)

    assert report.partitions_made == 4
    assert "processed_event_2031_05" in await partitions(labour_engine)
    assert await outcome(labour_engine, event_id) is Claim.ALREADY_COMPLETED


async def test_whole_months_before_the_horizon_are_dropped_and_nothing_younger(labour_engine: AsyncEngine) -> None:
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)
    await retention.run_once(NOW - timedelta(days=120))  # makes January to April
    old, young = an_id(NOW - timedelta(days=119)), an_id(NOW - timedelta(days=89))
    await completed(labour_engine, old, young)

    await retention.run_once(NOW)

    assert "processed_event_2031_01" not in await partitions(labour_engine)
    assert "processed_event_2031_02" in await partitions(labour_engine)  # holds the 19th, 90 days before
    assert await outcome(labour_engine, old) is Claim.GRANTED
    assert await outcome(labour_engine, young) is Claim.ALREADY_COMPLETED


async def test_old_published_events_are_deleted_and_unpublished_ones_never(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await emit(labour_units, *(Happened("a", number) for number in range(3)))
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE outbox SET recorded_at = now() - interval '1 year'"))
        await connection.execute(
            text("UPDATE outbox SET published_at = now() - interval '1 year' WHERE payload LIKE '%0}'")
        )
        await connection.execute(text("UPDATE outbox SET published_at = now() WHERE payload LIKE '%1}'"))

    report = await Retention(labour_engine, keep=KEEP, replay_horizon=KEEP).run_once(datetime.now(UTC))

    assert report.rows_deleted == 1
    async with labour_engine.connect() as connection:
        left = await connection.execute(text("SELECT payload FROM outbox ORDER BY position"))
        assert [payload[-2] for payload in left.scalars()] == ["1", "2"]


async def test_a_second_runner_leaves_the_work_to_the_first(labour_engine: AsyncEngine) -> None:
    async with labour_engine.begin() as connection:
        await connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('messaging.retention'))"))

        report = await Retention(labour_engine, keep=KEEP, replay_horizon=KEEP).run_once(NOW)

    assert report.partitions_made == 0


async def test_a_slice_deletes_so_many_batches_and_says_whether_there_is_more(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await emit(labour_units, *(Happened("a", number) for number in range(5)))
    async with labour_engine.begin() as connection:
        await connection.execute(
            text("UPDATE outbox SET recorded_at = now() - interval '1 year', published_at = now() - interval '1 year'")
        )
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP, batch_size=2)

    slices = [await retention.run_once(datetime.now(UTC), batches=1) for _ in range(3)]

    assert [(part.rows_deleted, part.more) for part in slices] == [(2, True), (2, True), (1, False)]


async def test_a_row_that_is_made_due_again_at_the_same_moment_is_not_deleted(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    await emit(labour_units, Happened("a", 1), Happened("a", 2))
    async with labour_engine.begin() as connection:
        await connection.execute(
            text("UPDATE outbox SET recorded_at = now() - interval '1 year', published_at = now() - interval '1 year'")
        )
    async with labour_engine.begin() as replaying:
        await replaying.execute(text("UPDATE outbox SET published_at = NULL WHERE payload LIKE '%1}'"))

        report = await Retention(labour_engine, keep=KEEP, replay_horizon=KEEP).run_once(datetime.now(UTC))

    assert report.rows_deleted == 1
    async with labour_engine.connect() as connection:
        assert (await connection.execute(text("SELECT payload FROM outbox"))).scalar_one().endswith("1}")


async def test_claims_go_on_while_a_long_transaction_keeps_a_partition_from_being_dropped(
    labour_engine: AsyncEngine,
) -> None:
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)
    await retention.run_once(NOW - timedelta(days=120))
    async with labour_engine.begin() as slow:
        await slow.execute(text("SELECT count(*) FROM processed_event"))
        running = asyncio.create_task(retention.run_once(NOW))
        claimed = 0
        while not running.done():
            async with asyncio.timeout(60):
                await completed(labour_engine, an_id(NOW, claimed))
            claimed += 1
        report = await running

    assert report.put_off > 0
    assert claimed > 0
    assert "processed_event_2031_01" in await partitions(labour_engine)
    assert (
        await retention.run_once(NOW)
    ).partitions_dropped == report.put_off - 4  # four are this month and the next three
    assert "processed_event_2031_01" not in await partitions(labour_engine)


async def test_consumers_at_work_neither_notice_nor_double_anything_while_months_come_and_go(
    labour_engine: AsyncEngine,
) -> None:
    async with labour_engine.begin() as connection:
        await connection.execute(text("CREATE TABLE effect (event_id uuid NOT NULL)"))
    clock, rounds = {"now": NOW}, Counter[int]()
    delivered, rest = list[UUID](), asyncio.Event()

    def still_known() -> list[UUID]:
        """The events whose claims are not so old that they might be deleted before the clock is moved again."""
        return [event_id for event_id in delivered if event_id >= first_id(clock["now"] - timedelta(days=40))]

    async def consume(name: int) -> None:
        while not rest.is_set():
            rounds[name] += 1
            fresh = [an_id(clock["now"] - timedelta(days=day), name * 1000 + rounds[name]) for day in (0, 35)]
            delivered.extend(fresh)
            again = still_known()[-40:]
            await asyncio.gather(handle(again), handle(again))

    async def handle(event_ids: list[UUID]) -> None:
        async with driver_connection(labour_engine) as connection, connection.transaction():
            claimed = await claims.claim(connection, "tests", event_ids)
            granted = [event_id for event_id, claim in claimed.items() if claim is Claim.GRANTED]
            await connection.execute("INSERT INTO effect SELECT unnest($1::uuid[])", granted)
            await claims.complete(connection, "tests", granted)

    consumers = [asyncio.create_task(consume(name)) for name in range(3)]
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP, batch_size=2)
    made = dropped = 0
    for _ in range(8):
        before = Counter(rounds)
        clock["now"] += timedelta(days=28)
        for _ in range(50):  # the consumers may keep it from the table for a while
            report = await retention.run_once(clock["now"])
            made, dropped = made + report.partitions_made, dropped + report.partitions_dropped
            if not report.put_off:
                break

        async def all_have_gone_on() -> bool:
            assert not any(consumer.done() for consumer in consumers), "a consumer has failed"
            return all(rounds[name] > before[name] + 2 for name in range(3))  # noqa: B023

        await eventually(all_have_gone_on, what="every consumer has gone on")
    rest.set()
    await asyncio.gather(*consumers)
    await handle(still_known())  # of which some may have been contended each time

    assert made > 6
    assert dropped > 3
    async with labour_engine.connect() as connection:
        effects = Counter((await connection.execute(text("SELECT event_id FROM effect"))).scalars())
    assert effects == Counter(set(delivered))


async def test_what_is_older_than_the_replay_horizon_is_not_replayed_and_the_answer_says_since_when_it_may_be(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, labour_operator: httpx.AsyncClient
) -> None:
    await emit(labour_units, Happened("a", 1), Happened("a", 2))
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE outbox SET published_at = now()"))
        await connection.execute(
            text("UPDATE outbox SET event_id = :old WHERE payload LIKE '%1}'"),
            {"old": an_id(datetime.now(UTC) - timedelta(days=31))},
        )

    async def replay(**wanted: object) -> httpx.Response:
        return await labour_operator.post("/operations/outbox/replay", json=wanted)

    refused = await replay(type=Happened.type)
    taken = await replay(type=Happened.type, since=refused.json()["oldest"])

    assert (refused.status_code, refused.json()["type"]) == (409, "urn:fernlabour:problem:beyond-the-replay-horizon")
    assert "the replay horizon of 30 days" in refused.json()["detail"]
    assert len(taken.json()["items"]) == 1
    assert (await replay()).status_code == 400


async def test_a_retention_that_is_too_short_is_refused_by_the_routes_too(labour_url: str) -> None:
    settings = LabourSettings.load({"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "RETENTION_DAYS": "5"})
    apis = build_labour(settings)
    async with served(apis.public), served(apis.operators) as url, async_client(url, OPERATOR) as client:
        answers = [
            await client.post("/operations/retention"),
            await client.post("/operations/outbox/replay", json={"type": "labour.begun"}),
        ]

    for answer in answers:
        assert (answer.status_code, answer.headers["content-type"]) == (409, "application/problem+json")
        assert "set RETENTION_DAYS to 30 or more" in answer.json()["detail"]


def test_the_first_id_of_a_moment_is_not_above_any_id_made_then() -> None:
    before = datetime.now(UTC)

    assert first_id(before) <= uuid7() < first_id(before + timedelta(minutes=1))
    assert Month(2031, 12).next() == Month(2032, 1)


def test_no_id_is_older_than_1970_and_every_moment_has_a_first_one() -> None:
    east, west = timezone(timedelta(hours=12)), timezone(timedelta(hours=-12))

    assert first_id(datetime.min.replace(tzinfo=east)) == UUID(int=0)
    assert first_id(datetime.max.replace(tzinfo=west)) > uuid7()
