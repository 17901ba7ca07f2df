"""Publishes the outbox to the bus: every committed event at least once, and the events of one key in order.

How order holds with any number of relays: each ordering key belongs to a lane, and a pass locks whole lanes (SKIP LOCKED)
before it reads what is in them. Two passes never hold rows of the same key, and the rows are read by a second statement, which
sees all that the lane's previous holder committed. Within a batch, an event is never sent before an earlier one of its key was
accepted by the bus. `messaging.lanes` finds the lanes that have work.

A relay makes several passes at the same time, in different lanes: while one waits for the bus, another reads or marks rows.

Failures:
- The bus does not answer: the rows stay unchanged, and the relay retries with growing pauses (0.1 s to 5 s).
- The bus does not have a topic, or denies access to it: rows of this topic are retried every `TOPIC_RETRY` seconds and never
  parked, because the topology is at fault and not the message. They hold up their own keys only.
- The bus rejects a message: its row is retried with growing pauses and parked after `max_attempts`. It holds up its own key only.
- The database is unavailable, read-only or full: the relay retries with growing pauses, and forgets nothing but its bounds.
- The relay crashes between publish and mark: the rows are published again with the same event ids. Consumers claim by event id.

Weakness: a relay that is frozen, not dead, keeps its lanes locked until the database ends its transaction (20 s).
"""

import asyncio
import random
from collections.abc import Collection, Container, Sequence
from dataclasses import dataclass

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog import get_logger

from messaging import metrics
from messaging.backoff import delay, wait, wait_for_any
from messaging.bus import Publisher
from messaging.database import describe, driver_connection, is_transient, transaction
from messaging.errors import PublishRejected, TopicUnusable
from messaging.faults import FaultPoint
from messaging.lanes import ABOVE_BOUND, DUE, IN_ORDER, Lanes
from messaging.masking import mask
from messaging.progress import Outage, step
from messaging.publishing import Row, publish_in_order

log = get_logger()

CHANNEL = "outbox"
TOPIC_RETRY = 5.0  # seconds

AFTER_READ = FaultPoint(
    "relay.after_read_before_publish", "a batch is read and its lanes are locked, nothing is published"
)
AFTER_PUBLISH = FaultPoint("relay.after_publish_before_mark", "the bus has the batch, its rows are not marked")
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


# `attempts` is at least 1, so that later rows of the key wait as well. Only rejections raise it further, and park a row.
_PUT_OFF = """
    UPDATE outbox SET attempts = greatest(attempts, 1), last_error = unusable.error,
        next_attempt_at = clock_timestamp() + make_interval(secs => $3)
    FROM unnest($1::bigint[], $2::text[]) AS unusable (position, error) WHERE outbox.position = unusable.position
"""


@dataclass(slots=True)
class Pass:
    """The counts of one pass. `waiting` rows were left unchanged because the bus did not answer, as `unanswered` says;
    `put_off` rows wait for their topic; `parked` ones are among the rejected.
    """

    published: int = 0
    rejected: int = 0
    waiting: int = 0
    put_off: int = 0
    unanswered: str = ""
    parked: int = 0


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
        self._due = list[int]()  # lanes with work that no pass has taken yet
        self._taken = set[int]()  # lanes of the passes that are under way
        self._unusable = dict[str, Outage]()  # by topic
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Make passes while there is work, then wait for a wake-up or the next poll. On `stop`, finish the current passes."""
        database, bus = Outage("database"), Outage("bus")
        under_way, look = set[asyncio.Task[Pass]](), True
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
                    await wait(stop, database.failed(describe(error)))
                    continue
                # A pass without any effect found its lanes locked by another relay, which looks again after its own pass.
                look = not ended or any(one != Pass() for one in ended) or bool(self._due) or self._woken.is_set()
                if ended or not under_way:
                    database.over()
                unanswered = [one.unanswered for one in ended if one.unanswered]
                published = any(one.published for one in ended)
                if published:
                    bus.eased()
                if unanswered:
                    await wait(stop, bus.failed(unanswered[0]))
                elif published or not under_way:
                    bus.over()
        finally:
            for task in under_way:
                task.cancel()
            await asyncio.gather(*under_way, return_exceptions=True)

    async def _start_passes(self, under_way: set[asyncio.Task[Pass]]) -> None:
        """Start passes for the lanes that one query finds. A second query before a pass has ended would only delay the passes."""
        if not self._due:
            with step("looking for events to publish"):
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
        """Take some of the lanes with work for a pass."""
        lanes, self._due = self._due[: self._lanes_at_once], self._due[self._lanes_at_once :]
        self._taken.update(lanes)
        return lanes

    async def _pass(self, lanes: Sequence[int]) -> Pass:
        try:
            with step("publishing events"):
                async with driver_connection(self._engine) as connection:
                    async with transaction(connection):
                        done = await self._publish_lanes(connection, lanes)
                    await self._lanes.settle(connection)
        finally:
            self._taken.difference_update(lanes)
        if done.published:
            log.info("events published", count=done.published)
        if done != Pass():
            metrics.relay_pass(
                rows=done.published + done.rejected + done.waiting + done.put_off,
                published=done.published,
                rejected=done.rejected - done.parked,
                parked=done.parked,
                unanswered=done.waiting,
                put_off=done.put_off,
            )
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
            self._note_usable_topics(rows, published)
        if rejected:
            await self._mark_rejected(connection, rejected)
        unusable = [(row, str(error)) for row, error in waiting if isinstance(error, TopicUnusable)]
        unanswered = [str(error) for _, error in waiting if not isinstance(error, TopicUnusable)]
        if unusable:
            await self._put_off(connection, unusable)
        await AFTER_MARK()
        parked = sum(row.attempts + 1 >= self._max_attempts for row, _ in rejected)
        return Pass(len(published), len(rejected), len(unanswered), len(unusable), "".join(unanswered[:1]), parked)

    async def _put_off(self, connection: asyncpg.Connection, rows: Sequence[tuple[Row, str]]) -> None:
        for row, error in rows:
            self._unusable.setdefault(row.topic, Outage(f"topic {row.topic}")).failed(error[:300])
        positions, errors = [row.position for row, _ in rows], [mask(error)[:500] for _, error in rows]
        await connection.execute(_PUT_OFF, positions, errors, TOPIC_RETRY)

    def _note_usable_topics(self, rows: Sequence[Row], published: Container[int]) -> None:
        for topic in {row.topic for row in rows if row.topic in self._unusable and row.position in published}:
            self._unusable.pop(topic).over()

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
