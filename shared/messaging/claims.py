"""Claims: each event is handled by one consumer at a time, and once.

An advisory lock keeps two consumers from handling the same event at the same time. A row in `processed_event`, committed in the
same transaction as the effect, keeps every later delivery from handling it again. Lock and insert are two statements on purpose:
under READ COMMITTED each takes a new snapshot, so the statement after the lock sees what the previous holder committed.

Both belong to the caller's transaction. A rollback, a lost connection or a crash leaves neither lock nor row.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession


class Claim(Enum):
    GRANTED = "granted"
    ALREADY_COMPLETED = "already completed"
    HELD_ELSEWHERE = "held elsewhere"


@dataclass(frozen=True, slots=True)
class ClaimRow:
    """`message_id` is of the delivery that had the effect. `deliveries` counts that one and every repeat."""

    consumer: str
    event_id: UUID
    status: str
    claimed_at: datetime
    completed_at: datetime | None
    message_id: str | None
    deliveries: int


_TRY_LOCKS = text("""
    SELECT event_id FROM unnest(CAST(:ids AS uuid[]), CAST(:keys AS bigint[])) AS wanted (event_id, key)
    WHERE pg_try_advisory_xact_lock(key)
""")

# An existing row counts its deliveries. A count above this batch's copies means that the row existed before.
_INSERT_CLAIMS = text("""
    INSERT INTO processed_event (consumer, event_id, status, message_id, deliveries)
    SELECT :consumer, event_id, 'PROCESSING', message_id, copies
    FROM unnest(CAST(:ids AS uuid[]), CAST(:message_ids AS text[]), CAST(:copies AS integer[]))
        AS locked (event_id, message_id, copies)
    ON CONFLICT (consumer, event_id) DO UPDATE SET deliveries = processed_event.deliveries + excluded.deliveries
    RETURNING event_id, deliveries
""")

_COMPLETE_CLAIMS = text("""
    UPDATE processed_event SET status = 'COMPLETED', completed_at = clock_timestamp()
    WHERE consumer = :consumer AND event_id = ANY(CAST(:ids AS uuid[]))
""")

_RELEASE_CLAIMS = text("""
    DELETE FROM processed_event
    WHERE consumer = :consumer AND event_id = ANY(CAST(:ids AS uuid[])) AND status = 'PROCESSING'
""")

_DISCARD = text("""
    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT :consumer, event_id, 'DISCARDED', clock_timestamp() FROM unnest(CAST(:ids AS uuid[])) AS given_up (event_id)
    ON CONFLICT (consumer, event_id) DO NOTHING
    RETURNING event_id
""")

_SELECT_CLAIMS = text("""
    SELECT consumer, event_id, status, claimed_at, completed_at, message_id, deliveries FROM processed_event
    WHERE event_id = ANY(CAST(:ids AS uuid[])) ORDER BY claimed_at
""")


def lock_key(consumer: str, event_id: UUID) -> int:
    """The same number in every process, which Python's own `hash()` is not."""
    return int.from_bytes(hashlib.sha256(f"{consumer}:{event_id}".encode()).digest()[:8], signed=True)


async def claim(
    session: AsyncSession, consumer: str, event_ids: Collection[UUID], message_ids: Mapping[UUID, str] | None = None
) -> dict[UUID, Claim]:
    """Try to claim events and return one outcome for each. The claims end with the caller's transaction if it rolls back.

    `message_ids` are stored with the claims. An id that is given several times counts as that many deliveries.
    """
    copies = Counter(event_ids)
    ids = list(copies)
    keys = [lock_key(consumer, event_id) for event_id in ids]
    locked = list((await session.execute(_TRY_LOCKS, {"ids": ids, "keys": keys})).scalars())
    columns = {
        "ids": locked,
        "message_ids": [(message_ids or {}).get(event_id) for event_id in locked],
        "copies": [copies[event_id] for event_id in locked],
    }
    rows = await session.execute(_INSERT_CLAIMS, {"consumer": consumer, **columns})
    inserted = {event_id for event_id, deliveries in rows if deliveries == copies[event_id]}

    def outcome(event_id: UUID) -> Claim:
        if event_id in inserted:
            return Claim.GRANTED
        return Claim.ALREADY_COMPLETED if event_id in locked else Claim.HELD_ELSEWHERE

    return {event_id: outcome(event_id) for event_id in ids}


async def complete(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> None:
    await session.execute(_COMPLETE_CLAIMS, {"consumer": consumer, "ids": list(event_ids)})


async def release(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> None:
    """Delete the claims of events that arrived too early, so that their next delivery can claim them."""
    await session.execute(_RELEASE_CLAIMS, {"consumer": consumer, "ids": list(event_ids)})


async def discard(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> list[UUID]:
    """Mark events as discarded by an operator, so that later deliveries are acknowledged. Return the ones not completed."""
    given_up = await session.execute(_DISCARD, {"consumer": consumer, "ids": sorted(set(event_ids))})
    return list(given_up.scalars())


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """An operator discarded the `discarded` events. `repeats` counts deliveries of events that were already completed."""

    completed: int
    discarded: int
    repeats: int


_COUNT = text("""
    SELECT count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
        count(*) FILTER (WHERE status = 'DISCARDED') AS discarded,
        CAST(coalesce(sum(deliveries - 1), 0) AS bigint) AS repeats
    FROM processed_event
""")


async def counts(session: AsyncSession) -> ClaimCounts:
    return ClaimCounts(**(await session.execute(_COUNT)).mappings().one())


async def rows(session: AsyncSession, event_ids: Collection[UUID]) -> list[ClaimRow]:
    found = await session.execute(_SELECT_CLAIMS, {"ids": list(event_ids)})
    return [ClaimRow(**row) for row in found.mappings()]
