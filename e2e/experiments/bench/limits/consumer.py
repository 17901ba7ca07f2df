"""The limit of the consumer: claims and notifications of 100 events in one statement, on four connections."""

import asyncio
from typing import Any
from uuid import UUID, uuid4

import asyncpg

from e2e.experiments.bench.program import Stopwatch

CONNECTIONS, BATCH = 4, 100

_HANDLE = """
    WITH locked AS (
        SELECT event_id, labour_id FROM unnest($1::uuid[], $2::uuid[]) AS wanted (event_id, labour_id)
        WHERE pg_try_advisory_xact_lock(hashtextextended(CAST(event_id AS text), 0))),
    claimed AS (INSERT INTO claim SELECT event_id FROM locked ON CONFLICT DO NOTHING RETURNING event_id)
    INSERT INTO notification
    SELECT event_id, person_id, phone, 'The baby is here! Ada has given birth.'
    FROM claimed JOIN locked USING (event_id) JOIN member USING (labour_id)
"""


async def measure(*, url: str, count: int) -> dict[str, Any]:
    async with asyncpg.create_pool(url.replace("+asyncpg", ""), min_size=CONNECTIONS, max_size=CONNECTIONS) as pool:
        labours: list[UUID] = [
            row[0] for row in await pool.fetch("SELECT DISTINCT labour_id FROM member LIMIT $1", count)
        ]
        events = [(uuid4(), labour_id) for labour_id in labours]
        batches = iter([events[start : start + BATCH] for start in range(0, count, BATCH)])

        async def work() -> None:
            for batch in batches:
                await pool.execute(_HANDLE, [event for event, _ in batch], [labour for _, labour in batch])

        watch = Stopwatch()
        await asyncio.gather(*(work() for _ in range(CONNECTIONS)))
        return watch.read(count)
