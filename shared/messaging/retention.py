"""Deletes old claims and outbox rows, but none that a replay could still need.

Claims are partitioned by the month in their event id (a UUIDv7 begins with its time), so deleting a month is dropping a table.
Partitions are created ahead of time; the default partition holds claims of any other month, so that a claim never fails for a
missing partition. Published and discarded outbox rows are deleted in small batches, never one that is being replayed.

A process has no right to create or drop a table. Two functions of the tables' owner do it (`messaging.schema`), only for such
partitions.

Creating or dropping a partition needs an exclusive lock on the claims' table. We wait for it `LOCK_SECONDS` at most, because
every new claim queues behind our request; then we release it and retry, and finally leave it to the next run.

`RetentionTooShort` is raised if claims would be deleted before the replay horizon: an event replayed after its claim is deleted
would have its effect a second time. For the same reason a claim is kept for `keep` after it was made, whatever the time in its
event id: the id comes from the clock of the process that recorded the event, which may be wrong.

The database's clock decides what is old. A process whose own clock is far from it deletes nothing (`ClockWrong`).
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog import get_logger

from messaging import clock_offset
from messaging.backoff import delay, wait
from messaging.database import describe, is_transient
from messaging.errors import ClockWrong, RetentionTooShort
from messaging.gauges import backlog
from messaging.progress import Outage

log = get_logger()

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONTHS_AHEAD = 3
INTERVAL = 3600.0  # seconds between runs
BATCH = 1000  # rows deleted in one transaction
LOCK_SECONDS = 0.2
TRIES = 4
LOCK_NOT_AVAILABLE = "55P03"

_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('messaging.retention'))")

# Locked before the delete, so that a row that a replay changed in the meantime is checked again and kept.
_DELETE_OUTBOX = text("""
    DELETE FROM outbox WHERE position IN (
        SELECT position FROM outbox
        WHERE recorded_at < :before AND (published_at < :before OR discarded_at < :before)
        ORDER BY position LIMIT :batch FOR UPDATE SKIP LOCKED)
""")

_DELETE_CLAIMS = text("""
    DELETE FROM processed_event_default WHERE (consumer, event_id) IN (
        SELECT consumer, event_id FROM processed_event_default
        WHERE event_id < :first AND claimed_at < :before LIMIT :batch)
""")


@dataclass(frozen=True, slots=True)
class Month:
    year: int
    month: int

    @classmethod
    def of(cls, at: datetime) -> "Month":
        at = at.astimezone(UTC)
        return cls(at.year, at.month)

    def next(self) -> "Month":
        return Month(self.year + self.month // 12, self.month % 12 + 1)

    @property
    def name(self) -> str:
        return f"processed_event_{self.year:04d}_{self.month:02d}"

    @property
    def first_day(self) -> date:
        return date(self.year, self.month, 1)

    @property
    def start(self) -> UUID:
        return first_id(datetime(self.year, self.month, 1, tzinfo=UTC))


def first_id(at: datetime) -> UUID:
    """The smallest UUIDv7 of a moment. Ids compare like their times; the earliest is 1970."""
    milliseconds = (at - EPOCH) // timedelta(milliseconds=1)
    return UUID(int=max(milliseconds, 0) << 80)


@dataclass(slots=True)
class RetentionReport:
    """`put_off` partitions could not be created or dropped now. `more` means that old rows are left after the last batch."""

    partitions_made: int = 0
    partitions_dropped: int = 0
    rows_deleted: int = 0
    put_off: int = 0
    more: bool = False


class RetentionSettings(Protocol):
    """The part of a service's settings that retention reads."""

    @property
    def retention_days(self) -> int: ...
    @property
    def replay_horizon_days(self) -> int: ...


class Retention:
    """`keep` is how long claims and published events are stored; `replay_horizon` is the oldest event that may be replayed."""

    def __init__(
        self, engine: AsyncEngine, *, keep: timedelta, replay_horizon: timedelta, batch_size: int = BATCH
    ) -> None:
        if keep < replay_horizon:
            raise RetentionTooShort(
                f"retention of {keep.days} days is shorter than the replay horizon of {replay_horizon.days} days: "
                f"set RETENTION_DAYS to {replay_horizon.days} or more"
            )
        self._engine, self._keep, self._batch_size = engine, keep, batch_size
        self.replay_horizon = replay_horizon

    @classmethod
    def of(cls, engine: AsyncEngine, settings: RetentionSettings) -> "Retention":
        keep, horizon = timedelta(days=settings.retention_days), timedelta(days=settings.replay_horizon_days)
        return cls(engine, keep=keep, replay_horizon=horizon)

    async def run(self, stop: asyncio.Event) -> None:
        clock_reported, outage = False, Outage("database, for retention,", base=1.0, cap=30.0)
        while not stop.is_set():
            try:
                report = await self.run_once()
                clock_reported = False
                log.info(
                    "retention done",
                    partitions_made=report.partitions_made,
                    partitions_dropped=report.partitions_dropped,
                    rows_deleted=report.rows_deleted,
                    put_off=report.put_off,
                )
                outage.over()
                backlog.set_number("retention.undone", int(report.put_off > 0))
                await wait(stop, INTERVAL)
            except ClockWrong as error:
                if not clock_reported:
                    log.error("no retention while the clock is wrong", error=str(error))
                clock_reported = True
                backlog.set_number("retention.undone", 1)
                await wait(stop, INTERVAL)
            except Exception as error:
                if not is_transient(error):
                    raise
                await wait(stop, outage.failed(describe(error)))

    async def run_once(self, now: datetime | None = None, *, batches: int | None = None) -> RetentionReport:
        """Change partitions, then delete all old rows, or at most `batches` full batches of them. Safe under load.

        `now` replaces the database's clock in tests. Without it, `ClockWrong` is raised if the clock of this process is wrong.
        """
        now = now or await self._database_time()
        report = RetentionReport()
        await self._change_partitions(report, now)
        await self._delete_in_batches(report, now - self._keep, batches)
        return report

    async def _database_time(self) -> datetime:
        if problem := await clock_offset.problem(self._engine):
            raise ClockWrong(problem)
        async with self._engine.connect() as connection:
            return await clock_offset.database_time(connection)

    async def _change_partitions(self, report: RetentionReport, now: datetime) -> None:
        """Change one partition per transaction, so that waiting claims proceed in between."""
        failures = 0
        while failures < TRIES:
            try:
                async with self._engine.begin() as connection:
                    if not (await connection.execute(_TRY_LOCK)).scalar_one():
                        return  # another process does this now
                    missing, old = await _missing(connection, now), await _old(connection, now - self._keep)
                    report.put_off = len(missing) + len(old)
                    if not report.put_off:
                        return
                    await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'"))
                    await connection.execute(text("LOCK TABLE processed_event IN ACCESS EXCLUSIVE MODE"))
                    if missing:
                        await _create_partition(connection, missing[0])
                    elif not await _drop_partition(connection, old[0], now - self._keep):
                        continue  # the partition has a claim that was made while we waited for the lock
                failures = 0
                report.partitions_made += bool(missing)
                report.partitions_dropped += not missing
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                failures += 1
                await asyncio.sleep(delay(failures, base=LOCK_SECONDS, cap=1.0))

    async def _delete_in_batches(self, report: RetentionReport, before: datetime, batches: int | None) -> None:
        full = 0
        for statement in (_DELETE_OUTBOX, _DELETE_CLAIMS):
            while True:
                async with self._engine.begin() as connection:
                    deleted = await connection.execute(
                        statement, {"before": before, "first": first_id(before), "batch": self._batch_size}
                    )
                report.rows_deleted += deleted.rowcount
                if deleted.rowcount < self._batch_size:
                    break
                full += 1
                if full == batches:
                    report.more = True
                    return


async def ensure_partitions(connection: AsyncConnection) -> None:
    """Create the partitions of this month and the next `MONTHS_AHEAD`, and move matching claims out of the default partition."""
    for month in await _missing(connection, await clock_offset.database_time(connection)):
        await connection.execute(text("LOCK TABLE processed_event IN ACCESS EXCLUSIVE MODE"))
        await _create_partition(connection, month)


async def _missing(connection: AsyncConnection, now: datetime) -> list[Month]:
    existing, months = await _partitions(connection), [Month.of(now)]
    while len(months) <= MONTHS_AHEAD:
        months.append(months[-1].next())
    return [month for month in months if month not in existing]


async def _old(connection: AsyncConnection, before: datetime) -> list[Month]:
    """The months that have a partition and end before `before`, without those with a claim that was made later."""
    ended = [month for month in await _partitions(connection) if month.next().start <= first_id(before)]
    return [month for month in ended if not await _has_claims_since(connection, month.name, before)]


async def _has_claims_since(connection: AsyncConnection, partition: str, moment: datetime) -> bool:
    statement = text(f"SELECT EXISTS (SELECT FROM {partition} WHERE claimed_at >= :moment)")  # noqa: S608
    return bool((await connection.execute(statement, {"moment": moment})).scalar_one())


async def _create_partition(connection: AsyncConnection, month: Month) -> None:
    await connection.execute(text("SELECT create_claims_partition(:month)"), {"month": month.first_day})


async def _drop_partition(connection: AsyncConnection, month: Month, before: datetime) -> bool:
    """False if the partition has a claim that was made after `before`, and was not dropped."""
    statement = text("SELECT drop_claims_partition(:month, :before)")
    return bool((await connection.execute(statement, {"month": month.first_day, "before": before})).scalar_one())


async def _partitions(connection: AsyncConnection) -> list[Month]:
    found = await connection.execute(
        text("""
            SELECT child.relname FROM pg_inherits
            JOIN pg_class child ON child.oid = inhrelid
            WHERE inhparent = 'processed_event'::regclass AND child.relname ~ '^processed_event_[0-9]{4}_[0-9]{2}$'
            ORDER BY child.relname""")
    )
    return [Month(int(name[-7:-3]), int(name[-2:])) for name in found.scalars()]
