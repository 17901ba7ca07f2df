"""The statistics of labours: a projection of `contraction.*` and `labour.*` events that adds amounts to balances.

Adding is not idempotent: a balance to which an amount was added twice stays wrong. So every amount is first inserted as a row, a
posting, whose key is the event and the balance, and the same statement adds to a balance only the postings that were inserted. A
second delivery inserts nothing and adds nothing, even if the claim of its event is deleted by then. Postings are never deleted,
so a balance can be verified and rebuilt from them at any time.

The number of statements does not depend on the size of a batch.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from datetime import datetime
from uuid import UUID

import asyncpg
import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.events import Event
from labour.application.access import Action, authorize
from labour.domain.statistics import KnownContraction, Posting, Statistics, react, summarize
from messaging.consumer import Received
from messaging.unit_of_work import UnitOfWork

# Every labour has a balance `contractions`, and locking its row locks the labour. The ids are sorted, here and in the lock, so
# that two batches with the same labours wait for each other and never deadlock.
_ENSURE_LABOURS = """
    INSERT INTO statistics_balance (labour_id, what, amount)
    SELECT labour_id, 'contractions', 0 FROM unnest($1::uuid[]) AS wanted (labour_id) ORDER BY labour_id
    ON CONFLICT (labour_id, what) DO NOTHING
"""

_LOCK_LABOURS = """
    SELECT 1 FROM statistics_balance WHERE labour_id = ANY($1::uuid[]) AND what = 'contractions' ORDER BY labour_id FOR UPDATE
"""

# Not part of the statement that locks: under READ COMMITTED a later statement sees what the previous holder committed.
_LOAD_CONTRACTIONS = f"""
    SELECT {", ".join(KnownContraction.__struct_fields__)} FROM statistics_contraction WHERE labour_id = ANY($1::uuid[])
"""  # noqa: S608

_SAVE_CONTRACTIONS = f"""
    INSERT INTO statistics_contraction ({", ".join(KnownContraction.__struct_fields__)})
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::timestamptz[], $4::timestamptz[], $5::smallint[], $6::bigint[], $7::uuid[])
    ON CONFLICT (id) DO UPDATE SET (started_at, ended_at, stage, sequence, event_id)
        = ROW (excluded.started_at, excluded.ended_at, excluded.stage, excluded.sequence, excluded.event_id)
"""  # noqa: S608

# Only the postings that were inserted are added to the balances.
_POST = f"""
    WITH inserted AS (
        INSERT INTO statistics_posting ({", ".join(Posting.__struct_fields__)})
        SELECT * FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::bigint[])
        ON CONFLICT (event_id, what) DO NOTHING
        RETURNING labour_id, what, amount)
    INSERT INTO statistics_balance (labour_id, what, amount)
    SELECT labour_id, what, sum(amount) FROM inserted GROUP BY labour_id, what
    ON CONFLICT (labour_id, what) DO UPDATE SET amount = statistics_balance.amount + excluded.amount
"""  # noqa: S608


async def react_to_batch(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
    """Write the postings of a batch of events and add them to the balances. Returns no ids: no event is early."""
    known = await _lock_and_load(uow.connection, {one.event.labour_id for one in events})
    postings, changed = list[Posting](), dict[UUID, KnownContraction]()
    for received in events:
        of_labour = known[received.event.labour_id]
        reaction = react(received.id, received.envelope.sequence, received.event, of_labour)
        postings += reaction.postings
        if contraction := reaction.contraction:
            of_labour[contraction.id] = changed[contraction.id] = contraction
    if changed:
        await uow.connection.execute(_SAVE_CONTRACTIONS, *_columns(changed.values()))
    await uow.connection.execute(_POST, *_columns(postings))
    return ()


async def _lock_and_load(
    connection: asyncpg.Connection, labour_ids: Collection[UUID]
) -> dict[UUID, dict[UUID, KnownContraction]]:
    """The known contractions of each labour. The labours are locked until the end of the transaction."""
    wanted = list(labour_ids)
    await connection.execute(_ENSURE_LABOURS, wanted)
    await connection.execute(_LOCK_LABOURS, wanted)
    known = defaultdict[UUID, dict[UUID, KnownContraction]](dict)
    for row in await connection.fetch(_LOAD_CONTRACTIONS, wanted):
        contraction = KnownContraction(**row)
        known[contraction.labour_id][contraction.id] = contraction
    return known


def _columns(rows: Collection[msgspec.Struct]) -> list[tuple[object, ...]]:
    return list(zip(*map(msgspec.structs.astuple, rows), strict=True))


_BALANCES = text("SELECT what, amount FROM statistics_balance WHERE labour_id = :labour_id")


async def get_statistics(connection: AsyncConnection, caller: str, labour_id: UUID, now: datetime) -> Statistics:
    """The statistics of a labour; zero and empty if none of its events was counted yet. Raises as `authorize` does."""
    await authorize(connection, caller, labour_id, Action.READ_CONTRACTIONS)
    rows = await connection.execute(_BALANCES, {"labour_id": labour_id})
    return summarize({row.what: row.amount for row in rows}, now)


class Difference(msgspec.Struct, frozen=True):
    """A balance that is not the sum of its postings."""

    labour_id: UUID
    what: str
    balance: int
    postings: int


class DifferenceBatch(msgspec.Struct, frozen=True):
    """The differences of the labours up to `next`, which is the `after` of the next call; null if there are no more labours."""

    items: list[Difference]
    next: UUID | None


_LABOURS = """
    SELECT labour_id FROM statistics_balance WHERE labour_id > $1
    UNION SELECT labour_id FROM statistics_posting WHERE labour_id > $1
    ORDER BY labour_id LIMIT $2
"""

# One statement reads postings and balances in one snapshot, so a consumer that writes meanwhile causes no difference.
_DIFFERENCES = """
    SELECT labour_id, what, coalesce(balance.amount, 0) AS balance, coalesce(posted.amount, 0)::bigint AS postings
    FROM (SELECT labour_id, what, amount FROM statistics_balance WHERE labour_id = ANY($1::uuid[])) AS balance
    FULL JOIN (SELECT labour_id, what, sum(amount) AS amount FROM statistics_posting
        WHERE labour_id = ANY($1::uuid[]) GROUP BY labour_id, what) AS posted USING (labour_id, what)
    WHERE coalesce(balance.amount, 0) <> coalesce(posted.amount, 0)
    ORDER BY labour_id, what
"""

_CORRECT_BALANCES = """
    INSERT INTO statistics_balance (labour_id, what, amount) SELECT * FROM unnest($1::uuid[], $2::text[], $3::bigint[])
    ON CONFLICT (labour_id, what) DO UPDATE SET amount = excluded.amount
"""


async def find_differences(connection: asyncpg.Connection, *, after: UUID, limit: int) -> DifferenceBatch:
    """Compare the balances of the next `limit` labours with their postings."""
    labour_ids = [row["labour_id"] for row in await connection.fetch(_LABOURS, after, limit)]
    found = [Difference(**row) for row in await connection.fetch(_DIFFERENCES, labour_ids)]
    return DifferenceBatch(found, labour_ids[-1] if len(labour_ids) == limit else None)


async def rebuild(connection: asyncpg.Connection, *, after: UUID, limit: int) -> DifferenceBatch:
    """Set the balances of the next `limit` labours to the sum of their postings. Returns the differences that there were.

    Consumers that count events of the same labours wait for the end of the transaction.
    """
    async with connection.transaction():
        labour_ids = [row["labour_id"] for row in await connection.fetch(_LABOURS, after, limit)]
        await connection.execute(_ENSURE_LABOURS, labour_ids)
        await connection.execute(_LOCK_LABOURS, labour_ids)
        found = [Difference(**row) for row in await connection.fetch(_DIFFERENCES, labour_ids)]
        if found:
            await connection.execute(
                _CORRECT_BALANCES,
                [one.labour_id for one in found],
                [one.what for one in found],
                [one.postings for one in found],
            )
    return DifferenceBatch(found, labour_ids[-1] if len(labour_ids) == limit else None)
