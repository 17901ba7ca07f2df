"""Live updates of a labour: server-sent events.

A stream sends `labour` with the current labour, first and after each change; and `told` with the delivery status of all
messages, after each change of one. The id of each event is the version of the labour. Events carry the whole state, so a slow
or reconnecting client misses intermediate states only.

All open streams of a process share one listening connection and one query for changes.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

import msgspec
from litestar import Controller, get
from litestar.di import NamedDependency
from litestar.response import ServerSentEvent, ServerSentEventMessage
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from labour.application import queries, told
from labour.application.access import Action, authorize
from labour.application.told import RANKS, ToldView
from labour.application.views import LabourView, SubscribedLabourView
from labour.domain.errors import NoSuchLabour
from labour.http.responses import Id, Read, RunQuery
from messaging.backoff import wait, wait_for_any
from messaging.database import describe, is_transient
from messaging.progress import Outage

HEARTBEAT_SECONDS = 15.0  # proxies close a connection that is silent for a minute
POLL_SECONDS = 3.0  # the safety net for lost wake-ups
LOOKS = 2  # streams that read their labour at once: however many are open, they leave the database to the requests
REST_SECONDS = 0.05  # the shortest time between two queries, however many wake-ups arrive


class Mark(NamedTuple):
    """What a stream has sent. The status of a message only moves to a higher rank, so the sum of ranks grows with each change.

    The lowest rank is 0, and counts as 1 here: a message that is added changes the sum, too.
    """

    version: int
    told: int


_MARKS = text("""
    SELECT id, version, (SELECT coalesce(sum(rank + 1), 0) FROM told WHERE told.labour_id = labour.id) AS told
    FROM labour WHERE id = ANY(:ids)
""")


@dataclass(eq=False, slots=True)
class Watch:
    """One open stream. `changed` is set when there may be a newer state than `seen`, or when the process stops."""

    labour_id: UUID
    seen: Mark
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Changes:
    """Queries for changes for all streams of a process: after a wake-up, and every `POLL_SECONDS`."""

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine
        self._watches = set[Watch]()
        self._woken = asyncio.Event()
        self.looking = asyncio.Semaphore(LOOKS)
        self.ended = False

    def wake(self) -> None:
        self._woken.set()

    @contextmanager
    def watch(self, labour_id: UUID, seen: Mark) -> Iterator[Watch]:
        watch = Watch(labour_id, seen)
        self._watches.add(watch)
        self.wake()  # the labour may have changed since it was read
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    async def run(self, stopping: asyncio.Event) -> None:
        """Runs until `stopping` is set; then every stream ends, so that a stop does not wait for open streams."""
        outage = Outage("live updates")
        while not stopping.is_set():
            await wait_for_any(self._woken, stopping, seconds=POLL_SECONDS)
            self._woken.clear()
            try:
                await self._look()
                outage.over()
            except Exception as error:  # a failed query must not end the streams; the next one tries again
                outage.failed(describe(error))
            await wait(stopping, REST_SECONDS)
        self.ended = True
        for watch in self._watches:
            watch.changed.set()

    async def _look(self) -> None:
        if not self._watches:
            return
        async with self._engine.connect() as connection:
            rows = await connection.execute(_MARKS, {"ids": list({watch.labour_id for watch in self._watches})})
            marks = {row.id: Mark(row.version, row.told) for row in rows}
        for watch in self._watches:
            if marks.get(watch.labour_id, watch.seen) != watch.seen:
                watch.changed.set()


class Picture(NamedTuple):
    """The labour as one reader may see it. Only the mother is shown `told`; it is part of the mark of every stream."""

    labour: LabourView | SubscribedLabourView
    told: list[ToldView]
    shows_told: bool

    @property
    def mark(self) -> Mark:
        return Mark(self.labour.version, sum(RANKS[one.status] + 1 for one in self.told))


async def _look_at(connection: AsyncConnection, caller: str, labour_id: UUID) -> Picture:
    relation = await authorize(connection, caller, labour_id, Action.READ)
    labour = await queries.labour_as_seen_by(connection, relation, labour_id)
    return Picture(labour, await told.told_about(connection, labour_id), shows_told=relation.may(Action.MANAGE))


class LiveController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}/events"
    tags = ("labours",)

    @get(
        summary="Follow a labour as server-sent events. The mother and approved subscribers may.",
        media_type="text/event-stream",
    )
    async def follow(self, read: Read, changes: NamedDependency[Changes], labour_id: Id) -> ServerSentEvent:
        first = await read(_look_at, labour_id)  # before the response begins, because it may be a problem
        return ServerSentEvent(_events(read, changes, first), headers={"Cache-Control": "no-store"})


async def _events(read: RunQuery, changes: Changes, first: Picture) -> AsyncIterator[ServerSentEventMessage]:
    """Holds no database connection while it waits for a change or for a slow client."""
    with changes.watch(first.labour.id, first.mark) as watch:
        yield _event("labour", first, first.labour)
        if first.told and first.shows_told:
            yield _event("told", first, first.told)
        while not changes.ended:
            if not await wait(watch.changed, HEARTBEAT_SECONDS):
                yield ServerSentEventMessage(comment="still here", data=None)
                continue
            watch.changed.clear()
            try:
                async with changes.looking:
                    now = await read(_look_at, watch.labour_id)
            except NoSuchLabour:
                return  # the reader is no longer a subscriber
            except Exception as error:
                if not is_transient(error):
                    raise
                continue  # `seen` is unchanged, so the next successful look of `Changes` sets `changed` again
            before, watch.seen = watch.seen, now.mark
            if now.mark.version != before.version:
                yield _event("labour", now, now.labour)
            if now.mark.told != before.told and now.shows_told:
                yield _event("told", now, now.told)


def _event(kind: str, picture: Picture, data: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=kind, id=picture.labour.version, data=msgspec.json.encode(data))
