"""The consumer of the second article: claim the event, insert the notifications, complete the claim, in one ORM session.

The claim is the article's: a transaction-scoped advisory lock on a hash of the event id, a look at the row of the event, and an
insert of that row. Messages come from memory, as those of our consumer do.
"""

import asyncio
import hashlib
import logging
from dataclasses import dataclass
from typing import Any
from uuid import uuid4

from sqlalchemy import select, text, update
from sqlalchemy.dialects.postgresql import insert
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine

from e2e.experiments.bench.articles.tables import Notification, ProcessedEvent, Status, connect
from e2e.experiments.bench.program import Stopwatch

log = logging.getLogger(__name__)

PEOPLE = (("Grace", "+12025550101"), ("Edsger", "+12025550102"))


class AlreadyCompleted(Exception):
    """Acknowledge the message: an earlier delivery was handled."""


class HeldElsewhere(Exception):
    """Reject the message: another consumer is handling it."""


@dataclass(frozen=True, slots=True)
class LabourCompleted:
    id: str
    labour_id: str
    mother_name: str


class Claims:
    def __init__(self, session: AsyncSession) -> None:
        self._session = session

    async def take(self, event_id: str) -> None:
        number = int.from_bytes(hashlib.sha256(event_id.encode()).digest()[:8], signed=True)
        granted = await self._session.scalar(text("SELECT pg_try_advisory_xact_lock(:number)"), {"number": number})
        if not granted:
            raise HeldElsewhere(event_id)
        known = select(ProcessedEvent.status).where(ProcessedEvent.event_id == event_id)
        status = await self._session.scalar(known)
        if status == Status.COMPLETED:
            raise AlreadyCompleted(event_id)
        if status is None:
            row = insert(ProcessedEvent).values(event_id=event_id, status=Status.PROCESSING)
            await self._session.execute(row.on_conflict_do_nothing())
        log.info("event %s claimed", event_id)

    async def complete(self, event_id: str) -> None:
        row = update(ProcessedEvent).where(ProcessedEvent.event_id == event_id)
        await self._session.execute(row.values(status=Status.COMPLETED))
        log.info("event %s completed", event_id)


async def handle(engine: AsyncEngine, event: LabourCompleted) -> None:
    async with AsyncSession(engine) as session, session.begin():
        claims = Claims(session)
        await claims.take(event.id)
        body = f"The baby is here! {event.mother_name} has given birth."
        session.add_all(
            Notification(labour_id=event.labour_id, recipient=name, phone=phone, body=body) for name, phone in PEOPLE
        )
        await session.flush()
        await claims.complete(event.id)


async def measure(*, url: str, count: int, at_once: int) -> dict[str, Any]:
    """Handle `count` events, `at_once` at a time."""
    engine = create_async_engine(url, pool_size=10)
    events = iter([LabourCompleted(str(uuid4()), str(uuid4()), "Ada") for _ in range(count)])

    async def work() -> None:
        for event in events:
            await handle(engine, event)

    await connect(engine, at_once)
    watch = Stopwatch()
    await asyncio.gather(*(work() for _ in range(at_once)))
    result = watch.read(count)
    await engine.dispose()
    return result
