"""What a person does about rows of the outbox: let parked ones be tried again, give rows up, publish again what was published.

Many rows are settled in batches, in the order of their positions: each call handles one batch in one transaction and says where
the next begins. Every batch locks the lanes of its rows first, as the relay does: otherwise a relay could pass by a row while
we hold it, and publish a later one of the same key. It waits for a lane for `LOCK_SECONDS` at most.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, func, select, text, update
from sqlalchemy.ext.asyncio import AsyncSession

from messaging.outbox import OutboxRow, outbox, visible
from messaging.retention import first_id

LOCK_SECONDS = 5

_LOCK_LANES = text("""
    SELECT lane FROM outbox_lane WHERE lane = ANY(CAST(:lanes AS smallint[])) ORDER BY lane FOR UPDATE
""")

# Whatever is parked was tried before: saying so lets the index of troubled rows be used.
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
    """Parked rows of one type with the same reason; `labours` are held up by them. `event_id` is the oldest one's."""

    type: str
    reason: str | None
    count: int
    labours: int
    oldest_parked_at: datetime
    event_id: UUID


@dataclass(frozen=True, slots=True)
class SettledEvent:
    event_id: UUID
    type: str


@dataclass(frozen=True, slots=True)
class Batch:
    """`next` is where the next batch begins; None if there was nothing beyond this one."""

    items: list[SettledEvent]
    next: int | None


@dataclass(frozen=True, slots=True)
class Replays:
    """Rows that a replay has made due and that are not published again yet; parked ones wait for a person."""

    waiting: int
    parked: int


async def retry(session: AsyncSession, event_id: UUID) -> OutboxRow | None:
    """Lets a pending row be tried at once, as if it had never failed. None if there is no such pending row."""
    return await _settle_one(session, event_id, _AS_IF_NEW)


async def discard(session: AsyncSession, event_id: UUID) -> OutboxRow | None:
    """Gives a pending row up for good; it stays in the table, and its labour goes on. None if there is no such row."""
    return await _settle_one(session, event_id, {"discarded_at": func.clock_timestamp()})


async def parked_groups(session: AsyncSession) -> list[ParkedGroup]:
    """The largest first."""
    rows = await session.execute(_PARKED_GROUPS)
    return [ParkedGroup(**row) for row in rows.mappings()]


async def settle_parked(
    session: AsyncSession, *, discard: bool, type: str | None, reason: str | None, after: int, limit: int
) -> Batch:
    """Retries or discards a group of parked rows: those of one type, those whose reason contains a text, or all."""
    wanted: list[ColumnElement[bool]] = [*_PARKED]
    if type is not None:
        wanted.append(outbox.c.topic == type)
    if reason is not None:
        wanted.append(outbox.c.last_error.icontains(reason, autoescape=True))
    values = {"discarded_at": func.clock_timestamp()} if discard else _AS_IF_NEW
    return await _settle(session, wanted, values, after=after, limit=limit)


def published(
    *, since: datetime | None, until: datetime | None, ordering_key: str | None, type: str | None
) -> list[ColumnElement[bool]]:
    """What a replay may touch: neither what is still to be published, nor what a person gave up. The time of an event is the
    one in its id, which is also what the memory of its claims goes by.
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


async def any_before(session: AsyncSession, wanted: Sequence[ColumnElement[bool]], moment: datetime) -> bool:
    statement = select(outbox.c.position).where(*wanted, outbox.c.event_id < first_id(moment)).limit(1)
    return (await session.execute(statement)).first() is not None


async def replay(
    session: AsyncSession, wanted: Sequence[ColumnElement[bool]], *, dry_run: bool, after: int, limit: int
) -> Batch:
    """Makes published rows due again; with `dry_run` it only says which. The relay publishes them in order, as any others."""
    values = {**_AS_IF_NEW, "published_at": None, "replayed_at": func.clock_timestamp()}
    return await _settle(session, wanted, None if dry_run else values, after=after, limit=limit)


async def replays(session: AsyncSession) -> Replays:
    counted = select(
        func.count().filter(outbox.c.parked_at.is_(None)).label("waiting"),
        func.count(outbox.c.parked_at).label("parked"),
    ).where(*_PENDING, outbox.c.replayed_at.is_not(None))
    return Replays(**(await session.execute(counted)).mappings().one())


async def _settle(
    session: AsyncSession,
    wanted: Sequence[ColumnElement[bool]],
    values: dict[str, Any] | None,
    *,
    after: int,
    limit: int,
) -> Batch:
    found = await session.execute(
        select(outbox.c.position, outbox.c.lane, outbox.c.event_id, outbox.c.topic)
        .where(*wanted, outbox.c.position > after)
        .order_by(outbox.c.position)
        .limit(limit)
    )
    rows = found.all()
    settled = [SettledEvent(row.event_id, row.topic) for row in rows]
    if values and rows:
        await _lock_lanes(session, {row.lane for row in rows})
        changed = await session.execute(
            update(outbox)
            .where(
                outbox.c.position.in_([row.position for row in rows]), *wanted
            )  # it may have changed before the lock
            .values(**values)
            .returning(outbox.c.event_id)
        )
        still = set(changed.scalars())
        settled = [event for event in settled if event.event_id in still]
    return Batch(settled, rows[-1].position if len(rows) == limit else None)


async def _settle_one(session: AsyncSession, event_id: UUID, values: dict[str, Any]) -> OutboxRow | None:
    lanes = await session.execute(select(outbox.c.lane).where(outbox.c.event_id == event_id))
    await _lock_lanes(session, set(lanes.scalars()))
    changed = await session.execute(
        update(outbox).where(outbox.c.event_id == event_id, *_PENDING).values(**values).returning(*visible)
    )
    row = changed.mappings().one_or_none()
    return OutboxRow(**row) if row else None


async def _lock_lanes(session: AsyncSession, lanes: set[int]) -> None:
    await session.execute(text(f"SET LOCAL lock_timeout = '{LOCK_SECONDS}s'"))
    await session.execute(_LOCK_LANES, {"lanes": list(lanes)})
