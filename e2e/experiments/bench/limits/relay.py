"""The limits of the relay: the fastest shape that was tried, and publishing alone.

`drain`: four workers, 500 rows a batch, no order, a narrow table of what is pending. `publish`: no database at all.
"""

import asyncio
import json
from typing import Any

import asyncpg

from e2e.experiments.bench.environment import TOPIC
from e2e.experiments.bench.program import Stopwatch
from messaging.bus import Outgoing
from messaging.pubsub import PubSub

WORKERS, BATCH = 4, 500

_TAKE = """
    WITH taken AS (
        DELETE FROM pending WHERE position IN (SELECT position FROM pending LIMIT $1 FOR UPDATE SKIP LOCKED)
        RETURNING position)
    SELECT position, attributes, payload FROM event JOIN taken USING (position)
"""
_MARK = "INSERT INTO published SELECT position, now() FROM unnest($1::bigint[]) AS sent (position)"


async def drain(pool: asyncpg.Pool, bus: PubSub) -> int:
    """Publish until nothing is left, as one worker. Returns how many events it has published."""
    published = 0
    while True:
        async with pool.acquire() as connection, connection.transaction():
            rows = await connection.fetch(_TAKE, BATCH)
            if not rows:
                return published
            await bus.publish(TOPIC, [Outgoing(row["payload"].encode(), json.loads(row["attributes"])) for row in rows])
            await connection.execute(_MARK, [row["position"] for row in rows])
            published += len(rows)


async def publish(bus: PubSub, messages: list[Outgoing]) -> int:
    calls = iter([messages[start : start + BATCH] for start in range(0, len(messages), BATCH)])

    async def work() -> None:
        for part in calls:
            await bus.publish(TOPIC, part)

    await asyncio.gather(work(), work())
    return len(messages)


async def measure(*, url: str, project: str, count: int, only_publish: bool) -> dict[str, Any]:
    bus = PubSub(project)
    async with asyncpg.create_pool(url.replace("+asyncpg", ""), min_size=WORKERS, max_size=WORKERS) as pool:
        if only_publish:
            rows = await pool.fetch("SELECT attributes, payload FROM event LIMIT $1", count)
            messages = [Outgoing(row["payload"].encode(), json.loads(row["attributes"])) for row in rows]
            watch = Stopwatch()
            published = await publish(bus, messages)
        else:
            watch = Stopwatch()
            published = sum(await asyncio.gather(*(drain(pool, bus) for _ in range(WORKERS))))
        result = watch.read(published)
    await bus.close()
    return result
