"""Claims: each event is handled by one consumer at a time, and once.

An advisory lock keeps two consumers from handling the same event at the same time. A row in `processed_event`, committed in the
same transaction as the effect, keeps every later delivery from handling it again. Lock and insert are two statements on purpose:
under READ COMMITTED each takes a new snapshot, so the statement after the lock sees what the previous holder committed.

Both belong to the caller's transaction. A rollback, a lost connection or a crash leaves neither lock nor row.
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Protocol
from uuid import UUID

import asyncpg

from messaging.envelope import Envelope


class Claim(Enum):
    GRANTED = "granted"
    ALREADY_COMPLETED = "already completed"
    HELD_ELSEWHERE = "held elsewhere"
    TOO_EARLY = "too early"  # only with `messaging.watermarks`: an earlier event of its labour is missing


class Claimable(Protocol):
    """An event as a consumer has received it. `copies` is the number of its deliveries in the batch."""

    @property
    def id(self) -> UUID: ...
    @property
    def envelope(self) -> Envelope: ...
    @property
    def message_id(self) -> str: ...
    @property
    def copies(self) -> int: ...


class ClaimStrategy(Protocol):
    """How a consumer knows which events it has handled: `ProcessedEvents`, or `messaging.watermarks.Watermarks`."""

    async def claim(
        self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]
    ) -> dict[UUID, Claim]:
        """Return one outcome for each event. The claims end with the caller's transaction if it rolls back."""

    async def release(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None:
        """Give up the claims of events that the reaction could not handle yet."""

    async def complete(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None: ...


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


_TRY_LOCKS = """
    SELECT event_id FROM unnest($1::uuid[], $2::bigint[]) AS wanted (event_id, key) WHERE pg_try_advisory_xact_lock(key)
"""

# An existing row counts its deliveries. A count above this batch's copies means that the row existed before.
_INSERT_CLAIMS = """
    INSERT INTO processed_event (consumer, event_id, status, message_id, deliveries)
    SELECT $1, event_id, 'PROCESSING', message_id, copies
    FROM unnest($2::uuid[], $3::text[], $4::integer[]) AS locked (event_id, message_id, copies)
    ON CONFLICT (consumer, event_id) DO UPDATE SET deliveries = processed_event.deliveries + excluded.deliveries
    RETURNING event_id, deliveries
"""

_COMPLETE_CLAIMS = """
    UPDATE processed_event SET status = 'COMPLETED', completed_at = clock_timestamp()
    WHERE consumer = $1 AND event_id = ANY($2::uuid[])
"""

_RELEASE_CLAIMS = """
    DELETE FROM processed_event WHERE consumer = $1 AND event_id = ANY($2::uuid[]) AND status = 'PROCESSING'
"""

_DISCARD = """
    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT $1, event_id, 'DISCARDED', clock_timestamp() FROM unnest($2::uuid[]) AS given_up (event_id)
    ON CONFLICT (consumer, event_id) DO NOTHING
    RETURNING event_id
"""

_SELECT_CLAIMS = """
    SELECT consumer, event_id, status, claimed_at, completed_at, message_id, deliveries FROM processed_event
    WHERE event_id = ANY($1::uuid[]) ORDER BY claimed_at
"""


def lock_key(consumer: str, claimed: UUID | str) -> int:
    """The same number in every process, which Python's own `hash()` is not."""
    return int.from_bytes(hashlib.sha256(f"{consumer}:{claimed}".encode()).digest()[:8], signed=True)


async def claim(
    connection: asyncpg.Connection,
    consumer: str,
    event_ids: Collection[UUID],
    message_ids: Mapping[UUID, str] | None = None,
) -> dict[UUID, Claim]:
    """Try to claim events and return one outcome for each. The claims end with the caller's transaction if it rolls back.

    `message_ids` are stored with the claims. An id that is given several times counts as that many deliveries.
    """
    copies, stored = Counter(event_ids), message_ids or {}
    keys = [lock_key(consumer, event_id) for event_id in copies]
    locked = [row["event_id"] for row in await connection.fetch(_TRY_LOCKS, list(copies), keys)]
    counted = await connection.fetch(
        _INSERT_CLAIMS, consumer, locked, [stored.get(one) for one in locked], [copies[one] for one in locked]
    )
    outcomes = dict.fromkeys(copies, Claim.HELD_ELSEWHERE)
    for event_id, deliveries in counted:
        outcomes[event_id] = Claim.GRANTED if deliveries == copies[event_id] else Claim.ALREADY_COMPLETED
    return outcomes


async def complete(connection: asyncpg.Connection, consumer: str, event_ids: Collection[UUID]) -> None:
    await connection.execute(_COMPLETE_CLAIMS, consumer, event_ids)


async def release(connection: asyncpg.Connection, consumer: str, event_ids: Collection[UUID]) -> None:
    """Delete the claims of events that arrived too early, so that their next delivery can claim them."""
    await connection.execute(_RELEASE_CLAIMS, consumer, event_ids)


async def discard(connection: asyncpg.Connection, consumer: str, event_ids: Collection[UUID]) -> list[UUID]:
    """Mark events as discarded by an operator, so that later deliveries are acknowledged. Return the ones not completed."""
    return [row["event_id"] for row in await connection.fetch(_DISCARD, consumer, sorted(set(event_ids)))]


class ProcessedEvents:
    """The strategy of this module: a row for each event, for as long as retention keeps it."""

    async def claim(
        self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]
    ) -> dict[UUID, Claim]:
        deliveries = [event.id for event in events for _ in range(event.copies)]
        return await claim(connection, consumer, deliveries, {event.id: event.message_id for event in events})

    async def release(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None:
        await release(connection, consumer, [event.id for event in events])

    async def complete(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None:
        await complete(connection, consumer, [event.id for event in events])


@dataclass(frozen=True, slots=True)
class ClaimCounts:
    """An operator discarded the `discarded` events. `repeats` counts deliveries of events that were already completed."""

    completed: int
    discarded: int
    repeats: int


_COUNT = """
    SELECT count(*) FILTER (WHERE status = 'COMPLETED') AS completed,
        count(*) FILTER (WHERE status = 'DISCARDED') AS discarded,
        CAST(coalesce(sum(deliveries - 1), 0) AS bigint) AS repeats
    FROM processed_event
"""


async def counts(connection: asyncpg.Connection) -> ClaimCounts:
    [row] = await connection.fetch(_COUNT)
    return ClaimCounts(**row)


async def rows(connection: asyncpg.Connection, event_ids: Collection[UUID]) -> list[ClaimRow]:
    return [ClaimRow(**row) for row in await connection.fetch(_SELECT_CLAIMS, event_ids)]
