"""Events that mean nothing, for tests of the machinery, and where they get to."""

import asyncio
import random
from collections import defaultdict
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

import msgspec
from msgspec import Struct
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.tools import pull_all
from messaging.bus import Outgoing
from messaging.errors import BusUnavailable, PublishRejected
from messaging.outbox import OutboxRow, rows
from messaging.pubsub import PubSub
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
    """event id, ordering key, published, attempts, parked; in order."""
    async with engine.connect() as connection:
        rows = await connection.execute(
            text("""SELECT event_id, ordering_key, published_at IS NOT NULL, attempts, parked_at IS NOT NULL
                    FROM outbox ORDER BY position""")
        )
        return [tuple(row) for row in rows]


async def outbox_rows(units_of_work: UnitsOfWork, *, parked: bool) -> list[OutboxRow]:
    async with units_of_work() as uow:
        return await rows(uow.session, parked=parked)


async def all_published(engine: AsyncEngine) -> bool:
    return all(published for _, _, published, _, _ in await outbox_state(engine))


async def everything_on_the_bus(bus: PubSub) -> list[Happened]:
    """In the order of publishing, per topic."""
    topics = await asyncio.gather(*(pull_all(bus, f"tests.{topic}") for topic in TOPICS))
    return [msgspec.json.decode(message.data, type=Happened) for messages in topics for message in messages]


class Troubled:
    """The real bus behind a bad line: calls fail before or after they had their effect, or are rejected."""

    def __init__(self, bus: PubSub, seed: int) -> None:
        self._bus, self._random = bus, random.Random(seed)
        self.accepted = defaultdict[str, list[int]](list)

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        luck = self._random.random()
        if luck < 0.15:
            raise BusUnavailable("the request was lost")
        if luck < 0.25:
            raise PublishRejected("not this time")
        message_ids = await self._bus.publish(topic, messages)
        for message in messages:
            event = msgspec.json.decode(message.data, type=Happened)
            self.accepted[event.key].append(event.number)
        if luck < 0.4:
            raise BusUnavailable("the answer was lost")
        return message_ids
