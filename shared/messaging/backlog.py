"""Reads the number and the age of what waits from the database, every 10 s, for the metrics. Its cost is the same at any size
of a table.

Every statement reads an index of rows that are still to be done, and a bounded number of them. Parked rows are not in this bound:
they are passed over one by one, and an alert tells an operator of them. Sequential scans are disabled for the transaction, so
that wrong statistics cannot cause one. A reading that took long makes the next one wait longer, so that readings take at most 2 %
of a process's time.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog import get_logger

from messaging import metrics
from messaging.database import describe, driver_connection, is_transient, transaction
from messaging.gauges import backlog
from messaging.lanes import ABOVE_BOUND, IN_ORDER, PENDING
from messaging.outbox import LANES

log = get_logger()

READ_INTERVAL = 10.0  # seconds
READ_SHARE = 0.02
MOST = 10_000  # rows that one number counts
FIRST = 20  # waiting rows of each lane that are looked at for the oldest: positions rise with time, except those of a replay

T = TypeVar("T")
Read = Callable[[asyncpg.Connection], Awaitable[T]]

OLDEST_WAITING = f"""
    SELECT extract(epoch FROM clock_timestamp() - min(coalesce(first.replayed_at, first.recorded_at)))::float8
    FROM generate_series(0, {LANES - 1}) AS number CROSS JOIN LATERAL (SELECT number::smallint AS lane, 0 AS bound) AS l
    CROSS JOIN LATERAL (
        SELECT o.replayed_at, o.recorded_at FROM outbox o WHERE {ABOVE_BOUND} AND {PENDING} AND o.parked_at IS NULL
        ORDER BY {IN_ORDER} LIMIT {FIRST}) AS first
"""  # noqa: S608

WAITING = f"""
    SELECT count(*) FROM (
        SELECT FROM outbox o WHERE {PENDING} AND o.parked_at IS NULL ORDER BY {IN_ORDER} LIMIT {MOST}) AS pending
"""  # noqa: S608

PARKED = f"""
    SELECT count(*) FROM (
        SELECT FROM outbox o WHERE {PENDING} AND o.parked_at IS NOT NULL ORDER BY o.position LIMIT {MOST}) AS parked
"""  # noqa: S608


@dataclass(frozen=True, slots=True)
class OutboxBacklog:
    """The relay publishes `waiting` rows; `parked` rows need an operator. 10,000 means 10,000 or more."""

    waiting: int
    parked: int
    oldest_waiting_seconds: float | None


async def outbox_backlog(connection: asyncpg.Connection) -> OutboxBacklog:
    numbers = [await connection.fetchval(statement) for statement in (WAITING, PARKED, OLDEST_WAITING)]
    return OutboxBacklog(*numbers)


async def read_outbox(connection: asyncpg.Connection) -> None:
    now = await outbox_backlog(connection)
    backlog.set_age("outbox.oldest_waiting", now.oldest_waiting_seconds)
    backlog.set_number("outbox.waiting", now.waiting)
    backlog.set_number("outbox.parked", now.parked)


async def read_once(engine: AsyncEngine, read: Read[T]) -> T:
    async with driver_connection(engine) as connection, transaction(connection):
        await connection.execute("SET LOCAL enable_seqscan = off")
        return await read(connection)


async def watch_backlog(engine: AsyncEngine, read: Read[None]) -> None:
    """Read until cancelled, or not at all if there are no metrics. A reading that fails does not end the process. An outage is
    left to the loops that do the work.
    """
    while metrics.enabled:
        started = time.monotonic()
        try:
            await read_once(engine, read)
        except Exception as error:
            report = log.debug if is_transient(error) else log.warning
            report("backlog not read", error=describe(error))
        await asyncio.sleep(max(READ_INTERVAL, (time.monotonic() - started) / READ_SHARE))
