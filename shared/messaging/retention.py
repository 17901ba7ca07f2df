"""Keeps tables from growing for ever, without ever forgetting what a replay could bring back.

Claims are partitioned by the month in their event id (UUIDv7 begins with its time), so forgetting a month is dropping a table.
Partitions are made ahead of time; a default partition takes whatever has none, so that a claim never fails for want of one.
Published and discarded outbox rows are deleted in small batches, never one that is being replayed.

Making or dropping a partition needs the claims' table alone for a moment. We wait for that `LOCK_SECONDS` at most, because
every claim that comes meanwhile waits behind us; then we let them pass and try again, and in the end leave it to the next run.

Refused (`RetentionTooShort`) when the deduplication memory would be shorter than the replay horizon: an event replayed after
its claim is forgotten would have its effect a second time.
"""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Protocol
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog import get_logger

from messaging.backoff import delay, wait
from messaging.database import is_transient
from messaging.errors import RetentionTooShort

log = get_logger()

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MONTHS_AHEAD = 3
INTERVAL = 3600.0  # seconds between runs
BATCH = 1000  # rows deleted in one transaction
LOCK_SECONDS = 0.2
TRIES = 4
LOCK_NOT_AVAILABLE = "55P03"

_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(hashtext('messaging.retention'))")

# Locked before they are deleted, so that a row which a replay has changed in the meantime is looked at again, and stays.
_DELETE_OUTBOX = text("""
    DELETE FROM outbox WHERE position IN (
        SELECT position FROM outbox
        WHERE recorded_at < :before AND (published_at < :before OR discarded_at < :before)
        ORDER BY position LIMIT :batch FOR UPDATE SKIP LOCKED)
""")

_DELETE_CLAIMS = text("""
    DELETE FROM processed_event_default WHERE (consumer, event_id) IN (
        SELECT consumer, event_id FROM processed_event_default WHERE event_id < :first LIMIT :batch)
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
    def start(self) -> UUID:
        return first_id(datetime(self.year, self.month, 1, tzinfo=UTC))


def first_id(at: datetime) -> UUID:
    """The smallest UUIDv7 of a moment; ids compare like their times, and none is older than 1970."""
    milliseconds = (at - EPOCH) // timedelta(milliseconds=1)
    return UUID(int=max(milliseconds, 0) << 80)


@dataclass(slots=True)
class Report:
    """`put_off` partitions could not be made or dropped now; with `more`, there is more to delete than was asked for."""

    partitions_made: int = 0
    partitions_dropped: int = 0
    rows_deleted: int = 0
    put_off: int = 0
    more: bool = False


class Memory(Protocol):
    """What every service's settings say about it."""

    @property
    def retention_days(self) -> int: ...
    @property
    def replay_horizon_days(self) -> int: ...


class Retention:
    """`keep` is how long claims and published events are remembered; `replay_horizon` how far back anyone may replay."""

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
    def of(cls, engine: AsyncEngine, settings: Memory) -> "Retention":
        keep, horizon = timedelta(days=settings.retention_days), timedelta(days=settings.replay_horizon_days)
        return cls(engine, keep=keep, replay_horizon=horizon)

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                report = await self.run_once(datetime.now(UTC))
                log.info(
                    "retention done",
                    partitions_made=report.partitions_made,
                    partitions_dropped=report.partitions_dropped,
                    rows_deleted=report.rows_deleted,
                    put_off=report.put_off,
                )
            except Exception as error:
                if not is_transient(error):
                    raise
                log.warning("retention put off", error=type(error).__name__)
            await wait(stop, INTERVAL)

    async def run_once(self, now: datetime, *, batches: int | None = None) -> Report:
        """All there is to do, or a slice of it: at most so many batches are deleted. Safe at any time, under load."""
        report = Report()
        await self._change_partitions(report, now)
        await self._delete_in_batches(report, now - self._keep, batches)
        return report

    async def _change_partitions(self, report: Report, now: datetime) -> None:
        """One at a time, each in a transaction of its own, so that claims get their turn in between."""
        failures = 0
        while failures < TRIES:
            try:
                async with self._engine.begin() as connection:
                    if not (await connection.execute(_TRY_LOCK)).scalar_one():
                        return  # another process is at it
                    missing, old = await _missing(connection, now), await _old(connection, now - self._keep)
                    report.put_off = len(missing) + len(old)
                    if not report.put_off:
                        return
                    await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS * 1000:.0f}ms'"))
                    await connection.execute(text("LOCK TABLE processed_event IN ACCESS EXCLUSIVE MODE"))
                    if missing:
                        await _make_partition(connection, missing[0])
                    else:
                        await connection.execute(text(f"DROP TABLE {old[0]}"))
                failures = 0
                report.partitions_made += bool(missing)
                report.partitions_dropped += not missing
            except DBAPIError as error:
                if getattr(error.orig, "sqlstate", None) != LOCK_NOT_AVAILABLE:
                    raise
                failures += 1
                await asyncio.sleep(delay(failures, base=LOCK_SECONDS, cap=1.0))

    async def _delete_in_batches(self, report: Report, before: datetime, batches: int | None) -> None:
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


async def ensure_partitions(connection: AsyncConnection, now: datetime) -> None:
    """This month's partition and the next `MONTHS_AHEAD`, with what may lie in the default partition moved into them."""
    for month in await _missing(connection, now):
        await connection.execute(text("LOCK TABLE processed_event IN ACCESS EXCLUSIVE MODE"))
        await _make_partition(connection, month)


async def _missing(connection: AsyncConnection, now: datetime) -> list[Month]:
    existing, months = await _partitions(connection), [Month.of(now)]
    while len(months) <= MONTHS_AHEAD:
        months.append(months[-1].next())
    return [month for month in months if month.name not in existing]


async def _old(connection: AsyncConnection, before: datetime) -> list[str]:
    """Only months that lie wholly before."""

    def end(name: str) -> UUID:
        year, month = (int(part) for part in name.split("_")[2:])
        return Month(year, month).next().start

    return sorted(name for name in await _partitions(connection) if end(name) <= first_id(before))


async def _make_partition(connection: AsyncConnection, month: Month) -> None:
    bounds = {"low": month.start, "high": month.next().start}
    # Claims wait for as long as it takes to move what fell into the default partition, normally nothing.
    await connection.execute(text(f"CREATE TABLE {month.name} (LIKE processed_event INCLUDING ALL)"))
    await connection.execute(
        text(f"""
            WITH moved AS (
                DELETE FROM processed_event_default WHERE event_id >= :low AND event_id < :high RETURNING *)
            INSERT INTO {month.name} SELECT * FROM moved"""),  # noqa: S608
        bounds,
    )
    await connection.execute(
        text(
            f"ALTER TABLE processed_event ATTACH PARTITION {month.name} "
            f"FOR VALUES FROM ('{bounds['low']}') TO ('{bounds['high']}')"
        )
    )


async def _partitions(connection: AsyncConnection) -> set[str]:
    found = await connection.execute(
        text("""
            SELECT child.relname FROM pg_inherits
            JOIN pg_class child ON child.oid = inhrelid
            WHERE inhparent = 'processed_event'::regclass AND child.relname ~ '^processed_event_[0-9]{4}_[0-9]{2}$'""")
    )
    return set(found.scalars())
