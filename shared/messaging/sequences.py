"""Numbers the events of each ordering key: 1, 2, 3, … without gaps, in the order in which their transactions commit.

An aggregate needs none of this: each of its events raises its version by one, so the version is the number. For events of rows
that are no aggregates, a row for each key counts. It stays locked until the transaction ends: the next event of the key waits,
and a rollback gives the number back. A sequence of PostgreSQL and the outbox's position do neither, so their numbers have gaps
and become visible in another order (docs/decisions/0031-sequences.md).
"""

from collections.abc import Sequence
from dataclasses import replace

import asyncpg

from messaging.aggregate import Recorded

# Sorted, so that two transactions with the same keys wait for each other and never deadlock.
_NEXT = """
    WITH new AS (
        SELECT id, ordering_key FROM unnest($1::uuid[], $2::text[]) AS wanted (id, ordering_key)
        WHERE NOT EXISTS (SELECT FROM outbox WHERE event_id = id))
    INSERT INTO event_sequence AS counter (ordering_key, last)
    SELECT ordering_key, count(*) FROM new GROUP BY ordering_key ORDER BY ordering_key
    ON CONFLICT (ordering_key) DO UPDATE SET last = counter.last + excluded.last
    RETURNING ordering_key, last, ARRAY(SELECT id FROM new WHERE new.ordering_key = counter.ordering_key) AS ids
"""


async def number(connection: asyncpg.Connection, events: Sequence[Recorded]) -> list[Recorded]:
    """The events with their sequence, in the order given. Call it last: the keys stay locked until the commit.

    An event whose id is in the outbox already is left out. That is possible only if the id follows from the event's cause.
    """
    rows = await connection.fetch(_NEXT, [event.id for event in events], [event.key for event in events])
    last = {key: number - len(ids) for key, number, ids in rows}
    new = {one for _, _, ids in rows for one in ids}
    numbered = list[Recorded]()
    for event in events:
        if event.id in new:
            last[event.key] += 1
            numbered.append(replace(event, sequence=last[event.key]))
    return numbered
