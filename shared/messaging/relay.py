"""Publishes the outbox to the bus: every committed event at least once, and the events of one key in order.

How order holds with any number of relays: each ordering key belongs to a lane, and a relay locks whole lanes (SKIP LOCKED)
before it reads what is in them. Two relays never hold rows of the same key, and the rows are read by a second statement, which
sees all that the lane's previous holder committed. Within a batch, an event is never sent before an earlier one of its key was
accepted by the bus.

Failures:
- The bus does not answer: the rows stay unchanged, and the relay retries with growing pauses (0.1 s to 5 s).
- The bus rejects a message: its row is retried with growing pauses and parked after `max_attempts`. It holds up its own key only.
- The relay crashes between publish and mark: the rows are published again with the same event ids. Consumers claim by event id.

Weakness: a relay that is frozen, not dead, keeps its lanes locked until the database ends its transaction (60 s).
"""

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog import get_logger

from messaging.backoff import Backoff, delay, wait, wait_for_any
from messaging.bus import Outgoing, Publisher
from messaging.database import is_transient
from messaging.envelope import sequence
from messaging.errors import BusError, BusUnavailable, PublishRejected
from messaging.faults import FaultPoint
from messaging.masking import mask

log = get_logger()

CHANNEL = "outbox"

AFTER_READ = FaultPoint(
    "relay.after_read_before_publish", "a batch is read and its lanes are locked, nothing is published"
)
AFTER_PUBLISH = FaultPoint("relay.after_publish_before_mark", "the bus has the batch, the outbox does not know it")
AFTER_MARK = FaultPoint("relay.after_mark_before_commit", "the batch is marked as published, the mark is not committed")

# A row is due when neither it nor an earlier row of its key is parked or waiting for its next attempt.
_DUE = """
    o.published_at IS NULL AND o.discarded_at IS NULL AND NOT EXISTS (
        SELECT 1 FROM outbox held
        WHERE held.published_at IS NULL AND held.discarded_at IS NULL AND held.attempts > 0
          AND held.ordering_key = o.ordering_key AND held.position <= o.position
          AND (held.parked_at IS NOT NULL OR held.next_attempt_at > clock_timestamp()))
"""

# In random order, so that lanes whose topic fails do not starve the others.
_LOCK_LANES = text(f"""
    SELECT l.lane FROM outbox_lane l
    WHERE EXISTS (SELECT 1 FROM outbox o WHERE o.lane = l.lane AND {_DUE})
    ORDER BY random() LIMIT :lanes FOR UPDATE SKIP LOCKED
""")  # noqa: S608

_READ_BATCH = text(f"""
    SELECT o.position, o.topic, o.ordering_key, o.attributes, o.payload, o.attempts FROM outbox o
    WHERE o.lane = ANY(CAST(:lanes AS smallint[])) AND {_DUE}
    ORDER BY o.position LIMIT :limit
""")  # noqa: S608

# One timestamp for the whole batch: rows are updated in any order, and no later event may appear to be published first.
_MARK_PUBLISHED = text("""
    UPDATE outbox SET published_at = statement_timestamp(), last_error = NULL, message_id = sent.message_id
    FROM unnest(CAST(:positions AS bigint[]), CAST(:message_ids AS text[])) AS sent (position, message_id)
    WHERE outbox.position = sent.position
""")

_MARK_REJECTED = text("""
    UPDATE outbox SET attempts = attempts + 1, last_error = :error,
        next_attempt_at = clock_timestamp() + make_interval(secs => :retry_in),
        parked_at = CASE WHEN attempts + 1 >= :max_attempts THEN clock_timestamp() END
    WHERE position = :position
""")


class Row(NamedTuple):
    position: int
    topic: str
    ordering_key: str
    attributes: dict[str, str]
    payload: str
    attempts: int

    def outgoing(self) -> Outgoing:
        return Outgoing(self.payload.encode(), {**self.attributes, "ce-sequence": sequence(self.position)})


@dataclass(slots=True)
class Pass:
    """The counts of one pass. `waiting` rows were left unchanged because the bus did not answer."""

    published: int = 0
    rejected: int = 0
    waiting: int = 0


class Relay:
    """Options, with unit and default:

    batch_size      rows read in one pass (1,000, which is also what the bus takes in one call)
    lanes           lanes locked in one pass (32 of 64: two relays can always work side by side)
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
        lanes: int = 32,
        poll_interval: float = 1.0,
        max_attempts: int = 10,
        retry_base: float = 0.5,
        retry_cap: float = 60.0,
    ) -> None:
        self._engine, self._publisher = engine, publisher
        self._batch_size, self._lanes, self._poll_interval = batch_size, lanes, poll_interval
        self._max_attempts, self._retry_base, self._retry_cap = max_attempts, retry_base, retry_cap
        self._woken = asyncio.Event()

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Make passes while there is work, then wait for a wake-up or the next poll. On `stop`, finish the current pass."""
        backoff = Backoff()
        while not stop.is_set():
            self._woken.clear()
            try:
                done = await self.run_once()
            except Exception as error:
                if not is_transient(error):
                    raise
                pause = backoff.next()
                log.warning("database unavailable", error=type(error).__name__, retry_in=round(pause, 2))
                await wait(stop, pause)
                continue
            if done.published or not done.waiting:
                backoff.reset()
            if done.waiting:
                pause = backoff.next()
                log.warning("bus unavailable", waiting=done.waiting, published=done.published, retry_in=round(pause, 2))
                await wait(stop, pause)
            elif not done.published and not done.rejected:
                await wait_for_any(self._woken, stop, seconds=self._poll_interval)

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            lanes = (await connection.execute(_LOCK_LANES, {"lanes": self._lanes})).scalars().all()
            if not lanes:
                return Pass()
            batch = await connection.execute(_READ_BATCH, {"lanes": lanes, "limit": self._batch_size})
            rows = [Row(*row) for row in batch]
            await AFTER_READ()
            published, rejected, waiting = await self._publish(rows)
            await AFTER_PUBLISH()
            if published:
                sent = {"positions": list(published), "message_ids": list(published.values())}
                await connection.execute(_MARK_PUBLISHED, sent)
            for row, error in rejected:
                await self._mark_rejected(connection, row, error)
            await AFTER_MARK()
        if published:
            log.info("events published", count=len(published))
        return Pass(len(published), len(rejected), waiting)

    async def _publish(self, rows: Sequence[Row]) -> tuple[dict[int, str], list[tuple[Row, PublishRejected]], int]:
        """Return the published positions with their message ids, the rejected rows, and the number of rows left waiting."""
        published: dict[int, str] = {}
        rejected: list[tuple[Row, PublishRejected]] = []
        waiting = 0
        stuck: set[str] = set()  # keys with an event that was not published: their later events must wait
        for wave in _waves(rows):
            calls = [(topic, [row for row in group if row.ordering_key not in stuck]) for topic, group in wave.items()]
            outcomes = await asyncio.gather(*(self._send(topic, group) for topic, group in calls if group))
            for sent, refused in outcomes:
                published |= sent
                for row, error in refused:
                    stuck.add(row.ordering_key)
                    if isinstance(error, PublishRejected):
                        rejected.append((row, error))
                    else:
                        waiting += 1
        return published, rejected, waiting

    async def _send(self, topic: str, rows: Sequence[Row]) -> tuple[dict[int, str], list[tuple[Row, BusError]]]:
        """Publish in one call. If the bus rejects it, publish one by one, so that a bad message affects its own key only."""
        try:
            message_ids = await self._publisher.publish(topic, [row.outgoing() for row in rows])
            return dict(zip((row.position for row in rows), message_ids, strict=True)), []
        except BusUnavailable as error:
            return {}, [(row, error) for row in rows]
        except PublishRejected as error:
            if len(rows) == 1:
                return {}, [(rows[0], error)]
        sent: dict[int, str] = {}
        failed: dict[str, tuple[Row, BusError]] = {}
        for row in rows:
            if row.ordering_key not in failed:
                one_sent, one_failed = await self._send(topic, [row])
                sent |= one_sent
                failed.update({failure[0].ordering_key: failure for failure in one_failed})
        return sent, list(failed.values())

    async def _mark_rejected(self, connection: AsyncConnection, row: Row, error: PublishRejected) -> None:
        attempt = row.attempts + 1
        parked = attempt >= self._max_attempts
        await connection.execute(
            _MARK_REJECTED,
            {
                "position": row.position,
                "error": mask(str(error))[:500],
                "retry_in": delay(attempt, base=self._retry_base, cap=self._retry_cap),
                "max_attempts": self._max_attempts,
            },
        )
        report = log.error if parked else log.warning
        report(
            "event parked" if parked else "event rejected by the bus",
            event_id=row.attributes["ce-id"],
            topic=row.topic,
            attempt=attempt,
            error=str(error)[:300],
        )


def _waves(rows: Iterable[Row]) -> list[dict[str, list[Row]]]:
    """Group a batch into rounds of one call per topic. The rows of a key share a round until their topic changes; rows after
    the change go into a later round, because calls to different topics are not ordered.
    """
    waves: list[dict[str, list[Row]]] = []
    last: dict[str, tuple[int, str]] = {}
    for row in rows:
        number, topic = last.get(row.ordering_key, (0, row.topic))
        if topic != row.topic:
            number += 1
        last[row.ordering_key] = (number, row.topic)
        if number == len(waves):
            waves.append(defaultdict(list))
        waves[number][row.topic].append(row)
    return waves
