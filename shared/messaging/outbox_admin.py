"""Operations on outbox rows for operators: retry parked rows, discard rows, replay published rows.

Many rows are changed in batches, in the order of their positions: each call changes one batch in one transaction and returns
where the next one begins. A batch first locks the lanes of its rows, as the relay does: otherwise a relay could skip a row that
is locked here, and publish a later row of the same key. It waits for a lane for `LOCK_SECONDS` at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncConnection

from messaging.outbox import OutboxRow, outbox, visible
from messaging.retention import first_id

LOCK_SECONDS = 5

_LOCK_LANES = text("""
    SELECT lane FROM outbox_lane WHERE lane = ANY(CAST(:lanes AS smallint[])) ORDER BY lane FOR UPDATE
""")

# Every parked row has attempts > 0; the condition lets the planner use the index of such rows.
_PARKED_GROUPS = text("""
    SELECT topic AS type, last_error AS reason, count(*) AS count, count(DISTINCT ordering_key) AS labours,
        min(parked_at) AS oldest_parked_at, (array_agg(event_id ORDER BY position))[1] AS event_id
    FROM outbox WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NOT NULL AND attempts > 0
    GROUP BY topic, last_error ORDER BY count(*) DESC, topic, last_error
""")

_PENDING = (outbox.c.published_at.is_(None), outbox.c.discarded_at.is_(None))
_PARKED = (*_PENDING, outbox.c.parked_at.is_not(None), outbox.c.attempts > 0)
_DONE = (outbox.c.published_at.is_not(None), outbox.c.discarded_at.is_(None), outbox.c.parked_at.is_(None))

_AS_IF_NEW: dict[str, Any] = {"attempts": 0, "next_attempt_at": None, "parked_at": None, "last_error": None}


@dataclass(frozen=True, slots=True)
class ParkedGroup:
    """Parked rows of one type with the same reason. They hold up `labours` labours. `event_id` is of the oldest row."""

    type: str
    reason: str | None
    count: int
    labours: int
    oldest_parked_at: datetime
    event_id: UUID


@dataclass(frozen=True, slots=True)
class ChangedEvent:
    event_id: UUID
    type: str


@dataclass(frozen=True, slots=True)
class Batch:
    """`next` is the position after which the next batch begins, or None after the last batch."""

    items: list[ChangedEvent]
    next: int | None


@dataclass(frozen=True, slots=True)
class Replays:
    """Replayed rows that are not published again yet. The `parked` ones need an operator."""

    waiting: int
    parked: int


async def retry(connection: AsyncConnection, event_id: UUID) -> OutboxRow | None:
    """Reset the attempts of a pending row, so that the relay tries it at once. None if there is no such pending row."""
    return await _change_one(connection, event_id, _AS_IF_NEW)


async def discard(connection: AsyncConnection, event_id: UUID) -> OutboxRow | None:
    """Discard a pending row for good. It stays in the table and no longer holds up its key. None if there is no such row."""
    return await _change_one(connection, event_id, {"discarded_at": func.clock_timestamp()})


async def parked_groups(connection: AsyncConnection) -> list[ParkedGroup]:
    """The largest group first."""
    rows = await connection.execute(_PARKED_GROUPS)
    return [ParkedGroup(**row) for row in rows.mappings()]


async def change_parked(
    connection: AsyncConnection, *, discard: bool, type: str | None, reason: str | None, after: int, limit: int
) -> Batch:
    """Retry or discard parked rows: those of one type, those whose reason contains a text, or all."""
    wanted: list[ColumnElement[bool]] = [*_PARKED]
    if type is not None:
        wanted.append(outbox.c.topic == type)
    if reason is not None:
        wanted.append(outbox.c.last_error.icontains(reason, autoescape=True))
    values = {"discarded_at": func.clock_timestamp()} if discard else _AS_IF_NEW
    return await _change(connection, wanted, values, after=after, limit=limit)


def published(
    *, since: datetime | None, until: datetime | None, ordering_key: str | None, type: str | None
) -> list[ColumnElement[bool]]:
    """The rows that a replay may change: published ones that were not discarded. The time of an event is the one in its id,
    because the retention of its claim goes by the id too.
    """
    wanted: list[ColumnElement[bool]] = [*_DONE]
    if since is not None:
        wanted.append(outbox.c.event_id >= first_id(since))
    if until is not None:
        wanted.append(outbox.c.event_id < first_id(until))
    if ordering_key is not None:
        wanted.append(outbox.c.ordering_key == ordering_key)
    if type is not None:
        wanted.append(outbox.c.topic == type)
    return wanted


async def any_before(connection: AsyncConnection, wanted: Sequence[ColumnElement[bool]], moment: datetime) -> bool:
    statement = select(outbox.c.position).where(*wanted, outbox.c.event_id < first_id(moment)).limit(1)
    return (await connection.execute(statement)).first() is not None


async def replay(
    connection: AsyncConnection, wanted: Sequence[ColumnElement[bool]], *, dry_run: bool, after: int, limit: int
) -> Batch:
    """Make published rows pending again, so that the relay publishes them in order. With `dry_run`, only return them."""
    values = {**_AS_IF_NEW, "published_at": None, "replayed_at": func.clock_timestamp()}
    return await _change(connection, wanted, None if dry_run else values, after=after, limit=limit)


async def replays(connection: AsyncConnection) -> Replays:
    counted = select(
        func.count().filter(outbox.c.parked_at.is_(None)).label("waiting"),
        func.count(outbox.c.parked_at).label("parked"),
    ).where(*_PENDING, outbox.c.replayed_at.is_not(None))
    return Replays(**(await connection.execute(counted)).mappings().one())


async def _change(
    connection: AsyncConnection,
    wanted: Sequence[ColumnElement[bool]],
    values: dict[str, Any] | None,
    *,
    after: int,
    limit: int,
) -> Batch:
    found = await connection.execute(
        select(outbox.c.position, outbox.c.lane, outbox.c.event_id, outbox.c.topic)
        .where(*wanted, outbox.c.position > after)
        .order_by(outbox.c.position)
        .limit(limit)
    )
    rows = found.all()
    events = [ChangedEvent(row.event_id, row.topic) for row in rows]
    if values and rows:
        await _lock_lanes(connection, {row.lane for row in rows})
        # `wanted` again: a row may have changed before its lane was locked.
        same = update(outbox).where(outbox.c.position.in_([row.position for row in rows]), *wanted)
        changed = set((await connection.execute(same.values(**values).returning(outbox.c.event_id))).scalars())
        events = [event for event in events if event.event_id in changed]
    return Batch(events, rows[-1].position if len(rows) == limit else None)


async def _change_one(connection: AsyncConnection, event_id: UUID, values: dict[str, Any]) -> OutboxRow | None:
    lanes = await connection.execute(select(outbox.c.lane).where(outbox.c.event_id == event_id))
    await _lock_lanes(connection, set(lanes.scalars()))
    changed = await connection.execute(
        update(outbox).where(outbox.c.event_id == event_id, *_PENDING).values(**values).returning(*visible)
    )
    row = changed.mappings().one_or_none()
    return OutboxRow(**row) if row else None


async def _lock_lanes(connection: AsyncConnection, lanes: set[int]) -> None:
    await connection.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
    await connection.execute(_LOCK_LANES, {"lanes": list(lanes)})
