"""The relay of the first article: lock 100 unpublished events, publish each through Google's client, mark them, commit."""

import asyncio
import json
from datetime import UTC, datetime
from typing import Any

from google.cloud.pubsub_v1 import PublisherClient
from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from e2e.experiments.bench.articles.tables import DomainEvent, connect
from e2e.experiments.bench.program import Stopwatch

BATCH = 100


class Relay:
    """`PublisherClient.publish` returns a future that only a thread can wait for."""

    def __init__(self, engine: AsyncEngine, project: str) -> None:
        self._engine, self._project, self._client = engine, project, PublisherClient()

    async def run_once(self) -> int:
        async with AsyncSession(self._engine) as session, session.begin():
            waiting = select(DomainEvent).where(DomainEvent.published_at.is_(None))
            events = list(await session.scalars(waiting.limit(BATCH).with_for_update(skip_locked=True)))
            if not events:
                return 0
            await asyncio.gather(*map(self._publish, events))
            published = update(DomainEvent).where(DomainEvent.id.in_([event.id for event in events]))
            await session.execute(published.values(published_at=datetime.now(UTC)))
        return len(events)

    def close(self) -> None:
        self._client.transport.close()

    async def _publish(self, event: DomainEvent) -> None:
        topic = self._client.topic_path(self._project, event.type)
        data = json.dumps(event.data).encode()
        accepted = self._client.publish(topic, data, event_id=str(event.id), event_type=event.type)
        await asyncio.to_thread(accepted.result)


async def measure(*, url: str, project: str, count: int) -> dict[str, Any]:
    engine = create_async_engine(url)
    relay = Relay(engine, project)
    await connect(engine, 1)
    watch, published = Stopwatch(), 0
    while batch := await relay.run_once():
        published += batch
    result = watch.read(published)
    await engine.dispose()
    relay.close()
    return result
