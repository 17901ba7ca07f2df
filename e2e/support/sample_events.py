"""Sample events without a meaning, for tests of outbox, relay, bus and consumer; and queries for their state in the outbox."""

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

from msgspec import Struct
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging.outbox import OutboxRow, rows
from messaging.unit_of_work import UnitsOfWork


class Happened(Struct, frozen=True):
    type: ClassVar[str] = "test.happened"
    version: ClassVar[int] = 1

    key: str
    number: int


class AlsoHappened(Happened, frozen=True):
    type: ClassVar[str] = "test.also-happened"


TOPICS = {Happened.type: ["tests"], AlsoHappened.type: ["tests"]}


async def emit(units_of_work: UnitsOfWork, *events: Happened) -> None:
    async with units_of_work() as uow:
        for event in events:
            uow.emit(event, key=event.key, at=datetime.now(UTC))


async def outbox_state(engine: AsyncEngine) -> Sequence[tuple[UUID, str, bool, int, bool]]:
    """Event id, ordering key, published, attempts and parked of every row, by position."""
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("""SELECT event_id, ordering_key, published_at IS NOT NULL, attempts, parked_at IS NOT NULL
                    FROM outbox ORDER BY position""")
        )
        return [tuple(row) for row in rows]


async def outbox_rows(engine: AsyncEngine, *, parked: bool) -> list[OutboxRow]:
    async with engine.connect() as connection:
        return await rows(connection, parked=parked)


async def all_published(engine: AsyncEngine) -> bool:
    return all(published for _, _, published, _, _ in await outbox_state(engine))
