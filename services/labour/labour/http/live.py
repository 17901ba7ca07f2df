"""A labour as it happens, for a page that follows it: server-sent events.

Events: `labour` with the labour as it is now, first of all and whenever it has changed; `told` with who was told what, whenever
that has changed. The id of each is the version of the labour. What is sent is the state, not the steps to it: a client that is
slow, or was away, misses nothing but what is no longer true.

However many streams are open, a process listens on one connection and looks with one statement for all of them.
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
from litestar.params import FromPath
from litestar.response import ServerSentEvent, ServerSentEventMessage
from sqlalchemy import text
from structlog import get_logger

from labour.application import queries, told
from labour.application.told import RANKS, ToldView
from labour.application.views import LabourView, SubscribedLabourView
from labour.http.auth import Caller
from labour.storage import NoSuchLabour
from messaging.backoff import wait, wait_for_any
from messaging.database import is_transient
from messaging.unit_of_work import UnitsOfWork

log = get_logger()

HEARTBEAT_SECONDS = 15.0  # below the patience of proxies, which end what is silent for a minute
POLL_SECONDS = 3.0  # for hints that were lost
REST_SECONDS = 0.05  # between two looks, however many hints arrive


class Mark(NamedTuple):
    """What a stream has sent. News of a message only move forward, so the sum of their ranks grows with each of them."""

    version: int
    told: int


_MARKS = text("""
    SELECT id, version, (SELECT coalesce(sum(rank), 0) FROM told WHERE told.labour_id = labour.id) AS told
    FROM labour WHERE id = ANY(:ids)
""")


@dataclass(eq=False, slots=True)
class Watch:
    """One open stream. `changed` is set when there may be more than what was `seen`, or when it is time to end."""

    labour_id: UUID
    seen: Mark
    changed: asyncio.Event = field(default_factory=asyncio.Event)


class Changes:
    """Looks for changes on behalf of all the streams of a process: after a hint, and every `POLL_SECONDS`."""

    def __init__(self, units_of_work: UnitsOfWork) -> None:
        self._units_of_work = units_of_work
        self._watches = set[Watch]()
        self._hinted = asyncio.Event()
        self.ended = False

    def hint(self) -> None:
        self._hinted.set()

    @contextmanager
    def watch(self, labour_id: UUID, seen: Mark) -> Iterator[Watch]:
        watch = Watch(labour_id, seen)
        self._watches.add(watch)
        self.hint()  # something may have happened since it was seen
        try:
            yield watch
        finally:
            self._watches.discard(watch)

    async def run(self, stopping: asyncio.Event) -> None:
        """Until `stopping`; then every stream ends, so that a stop need not wait for those who only listen."""
        while not stopping.is_set():
            await wait_for_any(self._hinted, stopping, seconds=POLL_SECONDS)
            self._hinted.clear()
            try:
                await self._look()
            except Exception as error:  # streams stay open and look again: they must not end with one bad moment
                log.warning("could not look for changes", error=type(error).__name__, retry_in=POLL_SECONDS)
            await wait(stopping, REST_SECONDS)
        self.ended = True
        for watch in self._watches:
            watch.changed.set()

    async def _look(self) -> None:
        if not self._watches:
            return
        async with self._units_of_work() as uow:
            rows = await uow.session.execute(_MARKS, {"ids": list({watch.labour_id for watch in self._watches})})
            marks = {row.id: Mark(row.version, row.told) for row in rows}
        for watch in self._watches:
            if marks.get(watch.labour_id, watch.seen) != watch.seen:
                watch.changed.set()


class Picture(NamedTuple):
    """As one reader may see it. What is `told` is for the mother, and tells everybody's stream that something changed."""

    labour: LabourView | SubscribedLabourView
    told: list[ToldView]

    @property
    def mark(self) -> Mark:
        return Mark(self.labour.version, sum(RANKS[one.news] for one in self.told))

    @property
    def is_the_mothers(self) -> bool:
        return isinstance(self.labour, LabourView)


async def _look_at(units_of_work: UnitsOfWork, labour_id: UUID, caller: Caller) -> Picture:
    async with units_of_work() as uow:
        labour = await queries.get_labour(uow.session, labour_id, caller.id)
        return Picture(labour, await told.told_about(uow.session, labour_id))


class LiveController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}/events"
    tags = ("labours",)

    @get(summary="Follow a labour: server-sent events", media_type="text/event-stream")
    async def follow(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        changes: NamedDependency[Changes],
        caller: NamedDependency[Caller],
        labour_id: FromPath[UUID],
    ) -> ServerSentEvent:
        first = await _look_at(units_of_work, labour_id, caller)  # before the answer begins: it may be a problem
        return ServerSentEvent(_events(units_of_work, changes, caller, first), headers={"Cache-Control": "no-store"})


async def _events(
    units_of_work: UnitsOfWork, changes: Changes, caller: Caller, first: Picture
) -> AsyncIterator[ServerSentEventMessage]:
    """Holds no connection to the database while it waits for a change or for a slow client."""
    with changes.watch(first.labour.id, first.mark) as watch:
        yield _event("labour", first, first.labour)
        if first.told and first.is_the_mothers:
            yield _event("told", first, first.told)
        while not changes.ended:
            if not await wait(watch.changed, HEARTBEAT_SECONDS):
                yield ServerSentEventMessage(comment="still here", data=None)
                continue
            watch.changed.clear()
            try:
                now = await _look_at(units_of_work, watch.labour_id, caller)
            except NoSuchLabour:
                return  # not for this reader any more
            except Exception as error:
                if not is_transient(error):
                    raise
                continue  # nothing was seen, so the next look that succeeds sets `changed` again
            before, watch.seen = watch.seen, now.mark
            if now.mark.version != before.version:
                yield _event("labour", now, now.labour)
            if now.mark.told != before.told and now.is_the_mothers:
                yield _event("told", now, now.told)


def _event(kind: str, picture: Picture, data: object) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=kind, id=picture.labour.version, data=msgspec.json.encode(data))
