"""Live updates of a labour: server-sent events.

`labour`  the labour as the reader may see it: first, and after each change of anything that they may read
`told`    the delivery status of all messages, after each change of one; for the mother only
`end`     why the server ends the stream, as its `reason`: `token-expired` (connect again with a new token) or `no-such-labour`
          (the reader is no longer a subscriber)

A reader is not told about changes of what they may not read: an event is sent only if what its reader may read differs from what
was sent last. So a subscriber who may not see contractions cannot infer their times from the stream, neither from its events nor
from its heartbeats. Events carry the whole state, so a slow or reconnecting client misses intermediate states only. The mother's
events have the version of the labour as their id.

All open streams of a process share one listening connection and one query for changes.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
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
from labour.application.views import LabourView
from labour.domain.errors import NoSuchLabour, NotYours
from labour.http.responses import Id, Read, RunQuery
from messaging.backoff import wait, wait_for_any
from messaging.database import describe, is_transient
from messaging.progress import Outage

HEARTBEAT_SECONDS = 15.0  # proxies close a connection that is silent for a minute
POLL_SECONDS = 3.0  # the safety net for lost wake-ups
LOOKS = 2  # streams that read their labour at the same time, so that many open streams do not delay the requests
REST_SECONDS = 0.05  # the shortest time between two queries, however many wake-ups arrive


class Mark(NamedTuple):
    """The version of a labour when a stream read it last. It differs after every change, also of what the reader may not see.

    The status of a message only moves to a higher rank, so the sum of ranks grows with each change. The lowest rank is 0, and
    counts as 1 here: a message that is added changes the sum, too.
    """

    version: int
    told: int


_MARKS = text("""
    SELECT id, version, (SELECT coalesce(sum(rank + 1), 0) FROM told WHERE told.labour_id = labour.id) AS told
    FROM labour WHERE id = ANY(:ids)
""")


async def _marks(connection: AsyncConnection, labour_ids: Collection[UUID]) -> dict[UUID, Mark]:
    rows = await connection.execute(_MARKS, {"ids": list(labour_ids)})
    return {row.id: Mark(row.version, row.told) for row in rows}


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
            marks = await _marks(connection, {watch.labour_id for watch in self._watches})
        for watch in self._watches:
            if marks.get(watch.labour_id) != watch.seen:
                watch.changed.set()


class Picture(NamedTuple):
    """What one reader may read, as it was when the mark was read or later. `labour` and `told` are sent; `others` is a digest of
    what is only compared, because the reader fetches it. `version` is None for all but the mother: every contraction raises it.
    """

    mark: Mark
    version: int | None
    labour: bytes
    told: bytes = b"[]"
    others: bytes = b""


async def _look_at(connection: AsyncConnection, caller: str, labour_id: UUID) -> Picture:
    relation = await authorize(connection, caller, labour_id, Action.READ)
    mark = (await _marks(connection, [labour_id]))[labour_id]  # read first: the next query finds all later changes
    labour = await queries.labour_as_seen_by(connection, relation, labour_id)
    if isinstance(labour, LabourView):
        messages = await told.told_about(connection, labour_id)
        return Picture(mark, labour.version, _encode(labour), _encode(messages))
    others: list[object] = [relation, await queries.list_updates(connection, caller, labour_id)]
    if relation.may(Action.READ_CONTRACTIONS):
        others.append(await queries.list_contractions(connection, caller, labour_id))
    return Picture(mark, None, _encode(labour), others=sha256(_encode(others)).digest())


_encode = msgspec.json.encode


class LiveController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}/events"
    tags = ("labours",)

    @get(
        operation_id="follow_labour",
        summary="Follow a labour as server-sent events.",
        media_type="text/event-stream",
        refuses={429: "too-many-streams"},
        example='event: end\ndata: {"reason": "token-expired"}\n\n',
    )
    async def follow(self, read: Read, changes: NamedDependency[Changes], labour_id: Id) -> ServerSentEvent:
        """The mother and approved subscribers may. A caller may have 20 streams open in each process of the API. The stream ends
        when the caller's access token expires.

        - `labour`: the labour as the reader may see it, first and after each change of what they may read.
        - `told`: the status of all messages, after each change of one; for the mother only.
        - `end`: why the server ends the stream. With the `reason` `token-expired`, connect again with a new token.
        """
        first = await read(_look_at, labour_id)  # before the response begins, because it may be a problem
        return ServerSentEvent(_events(read, changes, labour_id, first), headers={"Cache-Control": "no-store"})


async def _events(
    read: RunQuery, changes: Changes, labour_id: UUID, now: Picture
) -> AsyncIterator[ServerSentEventMessage]:
    """Holds no database connection while it waits for a change or for a slow client."""
    with changes.watch(labour_id, now.mark) as watch:
        yield _event("labour", now, now.labour)
        if now.told != b"[]":
            yield _event("told", now, now.told)
        beat_at = time.monotonic() + HEARTBEAT_SECONDS
        while not changes.ended:
            if (lasts := read.caller.expires_at - time.time()) <= 0:
                yield _end("token-expired")
                return
            if not await wait(watch.changed, min(lasts, beat_at - time.monotonic())):
                if time.monotonic() >= beat_at:
                    yield ServerSentEventMessage(comment="still here", data=None)
                    beat_at = time.monotonic() + HEARTBEAT_SECONDS
                continue
            watch.changed.clear()
            before = now
            try:
                async with changes.looking:
                    now = await read(_look_at, labour_id)
            except NoSuchLabour:
                yield _end("no-such-labour")
                return
            except NotYours:
                watch.changed.set()  # the role has changed between two queries: look again
                continue
            except Exception as error:
                if not is_transient(error):
                    raise
                continue  # `seen` is unchanged, so the next successful look of `Changes` sets `changed` again
            watch.seen = now.mark
            if time.time() >= read.caller.expires_at:
                continue
            if (now.labour, now.others) != (before.labour, before.others):
                yield _event("labour", now, now.labour)
            if now.told != before.told:
                yield _event("told", now, now.told)


def _event(kind: str, picture: Picture, data: bytes) -> ServerSentEventMessage:
    return ServerSentEventMessage(event=kind, id=picture.version, data=data)


def _end(reason: str) -> ServerSentEventMessage:
    return ServerSentEventMessage(event="end", data=_encode({"reason": reason}))
