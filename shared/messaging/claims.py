"""Who handles an event: one consumer at a time, and once for all time.

An advisory lock keeps two consumers from handling the same event at the same moment; a row in `processed_event`, committed in
the same transaction as the effect, keeps anyone from handling it again. Lock and look are two statements on purpose: under
READ COMMITTED each sees the world anew, so the look after the lock sees what the previous holder committed.

Both belong to the caller's transaction. A rollback, a lost connection or a crash leaves neither lock nor row.
"""

import hashlib
from collections.abc import Collection
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
    consumer: str
    event_id: UUID
    status: str
    claimed_at: datetime
    completed_at: datetime | None


_TRY_LOCKS = text("""
    SELECT event_id FROM unnest(CAST(:ids AS uuid[]), CAST(:keys AS bigint[])) AS wanted (event_id, key)
    WHERE pg_try_advisory_xact_lock(key)
""")

_INSERT_CLAIMS = text("""
    INSERT INTO processed_event (consumer, event_id, status)
    SELECT :consumer, event_id, 'PROCESSING' FROM unnest(CAST(:ids AS uuid[])) AS granted (event_id)
    ON CONFLICT (consumer, event_id) DO NOTHING
    RETURNING event_id
""")

_COMPLETE_CLAIMS = text("""
    UPDATE processed_event SET status = 'COMPLETED', completed_at = clock_timestamp()
    WHERE consumer = :consumer AND event_id = ANY(CAST(:ids AS uuid[]))
""")

_RELEASE_CLAIMS = text("""
    DELETE FROM processed_event
    WHERE consumer = :consumer AND event_id = ANY(CAST(:ids AS uuid[])) AND status = 'PROCESSING'
""")

_SELECT_CLAIMS = text("""
    SELECT consumer, event_id, status, claimed_at, completed_at FROM processed_event
    WHERE event_id = ANY(CAST(:ids AS uuid[])) ORDER BY claimed_at
""")


def lock_key(consumer: str, event_id: UUID) -> int:
    """The same number in every process, which Python's own `hash()` is not."""
    return int.from_bytes(hashlib.sha256(f"{consumer}:{event_id}".encode()).digest()[:8], signed=True)


async def claim(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> dict[UUID, Claim]:
    """One answer for each event; the claims live and die with the caller's transaction."""
    ids = list(dict.fromkeys(event_ids))
    keys = [lock_key(consumer, event_id) for event_id in ids]
    locked = set((await session.execute(_TRY_LOCKS, {"ids": ids, "keys": keys})).scalars())
    inserted = set((await session.execute(_INSERT_CLAIMS, {"consumer": consumer, "ids": list(locked)})).scalars())

    def outcome(event_id: UUID) -> Claim:
        if event_id in inserted:
            return Claim.GRANTED
        return Claim.ALREADY_COMPLETED if event_id in locked else Claim.HELD_ELSEWHERE

    return {event_id: outcome(event_id) for event_id in ids}


async def complete(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> None:
    await session.execute(_COMPLETE_CLAIMS, {"consumer": consumer, "ids": list(event_ids)})


async def release(session: AsyncSession, consumer: str, event_ids: Collection[UUID]) -> None:
    """For events that turned out to be too early: they must come again, so no row may stay."""
    await session.execute(_RELEASE_CLAIMS, {"consumer": consumer, "ids": list(event_ids)})


async def rows(session: AsyncSession, event_ids: Collection[UUID]) -> list[ClaimRow]:
    found = await session.execute(_SELECT_CLAIMS, {"ids": list(event_ids)})
    return [ClaimRow(**row) for row in found.mappings()]
