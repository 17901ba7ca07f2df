"""Publishes the outbox to the bus: every committed event at least once, and the events of one key in order.

How order holds with any number of relays: each ordering key belongs to a lane, and a pass locks whole lanes (SKIP LOCKED)
before it reads what is in them. Two passes never hold rows of the same key, and the rows are read by a second statement, which
sees all that the lane's previous holder committed. Within a batch, an event is never sent before an earlier one of its key was
accepted by the bus. `messaging.lanes` finds the lanes that have work.

A relay makes several passes at the same time, in different lanes: while one waits for the bus, another reads or marks rows.

Failures:
- The bus does not answer: the rows stay unchanged, and the relay retries with growing pauses (0.1 s to 5 s).
- The bus rejects a message: its row is retried with growing pauses and parked after `max_attempts`. It holds up its own key only.
- The relay crashes between publish and mark: the rows are published again with the same event ids. Consumers claim by event id.

Weakness: a relay that is frozen, not dead, keeps its lanes locked until the database ends its transaction (60 s).
"""

import asyncio
import random
from collections.abc import Collection, Sequence
from dataclasses import dataclass

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog import get_logger

from messaging.backoff import Backoff, delay, wait, wait_for_any
from messaging.bus import Publisher
from messaging.database import driver_connection, is_transient
from messaging.errors import PublishRejected
from messaging.faults import FaultPoint
from messaging.lanes import ABOVE_BOUND, DUE, IN_ORDER, Lanes
from messaging.masking import mask
from messaging.publishing import Row, publish_in_order

log = get_logger()

CHANNEL = "outbox"

AFTER_READ = FaultPoint(
    "relay.after_read_before_publish", "a batch is read and its lanes are locked, nothing is published"
)
AFTER_PUBLISH = FaultPoint("relay.after_publish_before_mark", "the bus has the batch, the outbox does not know it")
AFTER_MARK = FaultPoint("relay.after_mark_before_commit", "the batch is marked as published, the mark is not committed")

_LOCK_LANES = "SELECT lane FROM outbox_lane WHERE lane = ANY($1::smallint[]) FOR UPDATE SKIP LOCKED"

# The same number of rows from each lane, so that those of a batch are near each other in the table.
_READ_BATCH = f"""
    SELECT batch.* FROM unnest($1::smallint[], $2::bigint[]) AS l (lane, bound) CROSS JOIN LATERAL (
        SELECT o.position, o.topic, o.ordering_key, o.attributes::text, o.payload, o.attempts FROM outbox o
        WHERE {ABOVE_BOUND} AND {DUE} ORDER BY {IN_ORDER} LIMIT $3) AS batch
    LIMIT $4
"""  # noqa: S608

# One timestamp for the whole batch: rows are updated in any order, and no later event may appear to be published first.
_MARK_PUBLISHED = """
    UPDATE outbox SET published_at = statement_timestamp(), last_error = NULL, message_id = sent.message_id
    FROM unnest($1::bigint[], $2::text[]) AS sent (position, message_id) WHERE outbox.position = sent.position
"""

_MARK_REJECTED = """
    UPDATE outbox SET attempts = attempts + 1, last_error = rejected.error,
        next_attempt_at = clock_timestamp() + make_interval(secs => rejected.retry_in),
        parked_at = CASE WHEN attempts + 1 >= $4 THEN clock_timestamp() END
    FROM unnest($1::bigint[], $2::text[], $3::float8[]) AS rejected (position, error, retry_in)
    WHERE outbox.position = rejected.position
"""


@dataclass(slots=True)
class Pass:
    """The counts of one pass. `waiting` rows were left unchanged because the bus did not answer."""

    published: int = 0
    rejected: int = 0
    waiting: int = 0


class Relay:
    """Options, with unit and default:

    batch_size      rows read in one pass (1,000, which is also what the bus takes in one call)
    lanes           lanes locked in one pass (16 of 64)
    passes          passes at the same time (3: a second relay always finds free lanes)
    poll_interval   seconds between polls without a wake-up (1)
    max_attempts    rejections before a row is parked (10)
    retry_base, retry_cap   seconds; a rejected row waits between these, doubling (0.5, 60)
    """

    def __init__(
        self,
        engine: AsyncEngine,
        publisher: Publisher,
        *,
        batch_size: int = 1000,
        lanes: int = 16,
        passes: int = 3,
        poll_interval: float = 1.0,
        max_attempts: int = 10,
        retry_base: float = 0.5,
        retry_cap: float = 60.0,
    ) -> None:
        self._engine, self._publisher = engine, publisher
        self._batch_size, self._lanes_at_once, self._passes = batch_size, lanes, passes
        self._poll_interval = poll_interval
        self._max_attempts, self._retry_base, self._retry_cap = max_attempts, retry_base, retry_cap
        self._lanes = Lanes(sweep_interval=poll_interval)
        self._due = list[int]()  # lanes of the last look that no pass has taken yet
        self._taken = set[int]()  # lanes of the passes that are under way
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Make passes while there is work, then wait for a wake-up or the next poll. On `stop`, finish the current passes."""
        backoff, under_way, look = Backoff(), set[asyncio.Task[Pass]](), True
        try:
            while not stop.is_set() or under_way:
                try:
                    if look and not stop.is_set():
                        await self._start_passes(under_way)
                    await self._wait(under_way, stop)
                    ended = _take_ended(under_way)
                except Exception as error:
                    if not is_transient(error):
                        raise
                    self._lanes.forget()
                    pause = backoff.next()
                    log.warning("database unavailable", error=type(error).__name__, retry_in=round(pause, 2))
                    await wait(stop, pause)
                    continue
                # A pass without any effect found its lanes locked by another relay, which looks again after its own pass.
                look = not ended or any(one != Pass() for one in ended) or bool(self._due) or self._woken.is_set()
                published, waiting = sum(one.published for one in ended), sum(one.waiting for one in ended)
                if published or not (waiting or under_way):
                    backoff.reset()
                if waiting:
                    pause = backoff.next()
                    log.warning("bus unavailable", waiting=waiting, published=published, retry_in=round(pause, 2))
                    await wait(stop, pause)
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _start_passes(self, under_way: set[asyncio.Task[Pass]]) -> None:
        """Start passes for the lanes of one look: a second one, before a pass has ended, would only delay the passes."""
        if not self._due:
            await self._look()
        while self._due and len(under_way) < self._passes:
            under_way.add(asyncio.create_task(self._pass(self._take_lanes())))

    async def _wait(self, under_way: Collection[asyncio.Task[Pass]], stop: asyncio.Event) -> None:
        """Wait until a pass has ended, or until there may be work for another one."""
        if stop.is_set():
            await asyncio.gather(*under_way, return_exceptions=True)
        elif len(under_way) == self._passes:
            await wait_for_any(stop, tasks=under_way, seconds=self._poll_interval)
        else:
            await wait_for_any(stop, self._woken, tasks=under_way, seconds=self._poll_interval)

    async def run_once(self) -> Pass:
        """Look which lanes have work, and make one pass over some of them."""
        await self._look()
        return await self._pass(self._take_lanes()) if self._due else Pass()

    async def _look(self) -> None:
        """Find the lanes that have work and that no pass has taken."""
        self._woken.clear()
        async with driver_connection(self._engine) as connection:
            due = await self._lanes.due(connection)
            self._due = [lane for lane in due if lane not in self._taken]
            if not self._due:
                await self._lanes.settle(connection)
        random.shuffle(self._due)  # so that lanes whose topic fails do not starve the others

    def _take_lanes(self) -> list[int]:
        """Take some of the lanes of the last look for a pass."""
        lanes, self._due = self._due[: self._lanes_at_once], self._due[self._lanes_at_once :]
        self._taken.update(lanes)
        return lanes

    async def _pass(self, lanes: Sequence[int]) -> Pass:
        try:
            async with driver_connection(self._engine) as connection:
                async with connection.transaction(isolation="read_committed"):
                    done = await self._publish_lanes(connection, lanes)
                await self._lanes.settle(connection)
        finally:
            self._taken.difference_update(lanes)
        if done.published:
            log.info("events published", count=done.published)
        return done

    async def _publish_lanes(self, connection: asyncpg.Connection, wanted: Sequence[int]) -> Pass:
        free = {lane for (lane,) in await connection.fetch(_LOCK_LANES, wanted)}
        lanes = [lane for lane in wanted if lane in free]
        if not lanes:
            return Pass()
        bounds = [self._lanes.bounds[lane] for lane in lanes]
        each = -(-self._batch_size // len(lanes))
        rows = sorted(Row(*row) for row in await connection.fetch(_READ_BATCH, lanes, bounds, each, self._batch_size))
        if not rows:
            return Pass()
        await AFTER_READ()
        published, rejected, waiting = await publish_in_order(self._publisher, rows)
        await AFTER_PUBLISH()
        if published:
            await connection.execute(_MARK_PUBLISHED, list(published), list(published.values()))
        if rejected:
            await self._mark_rejected(connection, rejected)
        await AFTER_MARK()
        return Pass(len(published), len(rejected), waiting)

    async def _mark_rejected(
        self, connection: asyncpg.Connection, rejected: Sequence[tuple[Row, PublishRejected]]
    ) -> None:
        positions = [row.position for row, _ in rejected]
        errors = [mask(str(error))[:500] for _, error in rejected]
        pauses = [delay(row.attempts + 1, base=self._retry_base, cap=self._retry_cap) for row, _ in rejected]
        await connection.execute(_MARK_REJECTED, positions, errors, pauses, self._max_attempts)
        for row, error in rejected:
            parked = row.attempts + 1 >= self._max_attempts
            report = log.error if parked else log.warning
            report(
                "event parked" if parked else "event rejected by the bus",
                event_id=row.event_id,
                topic=row.topic,
                attempt=row.attempts + 1,
                error=str(error)[:300],
            )


def _take_ended(under_way: set[asyncio.Task[Pass]]) -> list[Pass]:
    """Remove the passes that have ended, and return what they did. Raises the error of one that failed."""
    ended = [task for task in under_way if task.done()]
    under_way.difference_update(ended)
    if errors := [error for task in ended if (error := task.exception())]:
        raise next((error for error in errors if not is_transient(error)), errors[0])
    return [task.result() for task in ended]
