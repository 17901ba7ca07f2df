"""Keeps tables from growing for ever, without ever forgetting what a replay could bring back.

Claims are partitioned by the month in their event id (UUIDv7 begins with its time), so forgetting a month is dropping a table.
Partitions are made ahead of time; a default partition takes whatever has none, so that a claim never fails for want of one.
Published and discarded outbox rows are deleted in small batches.

Refused (`RetentionTooShort`) when the deduplication memory would be shorter than the replay horizon: an event replayed after
its claim is forgotten would have its effect a second time.
"""

import asyncio
import calendar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from messaging.database import is_passing
from messaging.errors import RetentionTooShort
from messaging.logs import get_logger
from messaging.process import wait

log = get_logger()

MONTHS_AHEAD = 3
INTERVAL = 3600.0  # seconds between runs
BATCH = 1000  # rows deleted in one transaction
_LOCK = "SELECT pg_try_advisory_xact_lock(hashtext('messaging.retention'))"


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
    """The smallest UUIDv7 of a moment; ids compare like their times."""
    milliseconds = calendar.timegm(at.utctimetuple()) * 1000 + at.microsecond // 1000
    return UUID(int=milliseconds << 80)


@dataclass(slots=True)
class Report:
    partitions_made: int = 0
    partitions_dropped: int = 0
    rows_deleted: int = 0


class Retention:
    """`keep` is how long claims and published events are remembered; `replay_horizon` how far back anyone may replay."""

    def __init__(self, engine: AsyncEngine, *, keep: timedelta, replay_horizon: timedelta) -> None:
        if keep < replay_horizon:
            raise RetentionTooShort(
                f"retention of {keep.days} days is shorter than the replay horizon of {replay_horizon.days} days: "
                f"set RETENTION_DAYS to {replay_horizon.days} or more"
            )
        self._engine, self._keep = engine, keep

    async def run(self, stop: asyncio.Event) -> None:
        while not stop.is_set():
            try:
                report = await self.run_once(datetime.now(UTC))
                log.info(
                    "retention done",
                    partitions_made=report.partitions_made,
                    partitions_dropped=report.partitions_dropped,
                    rows_deleted=report.rows_deleted,
                )
            except Exception as error:
                if not is_passing(error):
                    raise
                log.warning("retention put off", error=type(error).__name__)
            await wait(stop, INTERVAL)

    async def run_once(self, now: datetime) -> Report:
        """Does nothing while another process is at it. Safe at any time, under load."""
        report = Report()
        async with self._engine.begin() as connection:
            if not (await connection.execute(text(_LOCK))).scalar_one():
                return report
            report.partitions_made = await ensure_partitions(connection, now)
            report.partitions_dropped = await self._drop_old_partitions(connection, now - self._keep)
        report.rows_deleted = await self._delete_in_batches(now - self._keep)
        return report

    async def _drop_old_partitions(self, connection: AsyncConnection, before: datetime) -> int:
        """Only months that lie wholly before."""
        dropped = 0
        for name in sorted(await _partitions(connection)):
            year, month = (int(part) for part in name.split("_")[2:])
            if Month(year, month).next().start <= first_id(before):
                await connection.execute(text(f"DROP TABLE {name}"))
                dropped += 1
        return dropped

    async def _delete_in_batches(self, before: datetime) -> int:
        statements = (
            """DELETE FROM outbox WHERE position IN (
                SELECT position FROM outbox
                WHERE recorded_at < :before AND (published_at < :before OR discarded_at < :before)
                ORDER BY position LIMIT :batch)""",
            """DELETE FROM processed_event_default WHERE (consumer, event_id) IN (
                SELECT consumer, event_id FROM processed_event_default WHERE event_id < :first LIMIT :batch)""",
        )
        deleted = 0
        for statement in statements:
            while True:
                async with self._engine.begin() as connection:
                    result = await connection.execute(
                        text(statement), {"before": before, "first": first_id(before), "batch": BATCH}
                    )
                deleted += result.rowcount
                if result.rowcount < BATCH:
                    break
        return deleted


async def ensure_partitions(connection: AsyncConnection, now: datetime) -> int:
    """This month's partition and the next `MONTHS_AHEAD`, with what may lie in the default partition moved into them."""
    existing = await _partitions(connection)
    made, month = 0, Month.of(now)
    for _ in range(MONTHS_AHEAD + 1):
        if month.name not in existing:
            await _make_partition(connection, month)
            made += 1
        month = month.next()
    return made


async def _make_partition(connection: AsyncConnection, month: Month) -> None:
    bounds = {"low": month.start, "high": month.next().start}
    # Attaching locks out claims for the moment it takes to move what fell into the default partition, normally nothing.
    await connection.execute(text("LOCK TABLE processed_event IN ACCESS EXCLUSIVE MODE"))
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
