"""Ten mistakes, each as small as possible: what was done, why it looks right, and what happens."""

import re
from collections.abc import Awaitable, Callable, Collection, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import partial
from typing import Any, TypeVar
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from contracts.events import Event
from e2e.experiments.museum import scenarios
from e2e.experiments.museum.testbed import Testbed
from e2e.support.sample_events import Happened
from messaging import claims
from messaging.bus import Message, Publisher
from messaging.claims import lock_key
from messaging.consumer import AFTER_EFFECT, Consumer, React, Received, Verdict
from messaging.publishing import Row
from messaging.relay import AFTER_READ, Pass, Relay
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from notification.application.batch_reaction import react_to_batch
from notification.delivery import ledger
from notification.delivery.twilio import Accepted, Twilio
from notification.domain.transitions import record_sent

PROMISES = {
    2: "every committed event reaches the bus",
    3: "the events of a labour are published in the order they happened",
    4: "the effect of an event happens exactly once",
    5: "contention is a nack, and a failure leaves neither claim nor effect",
    6: "a person gets each text at most once",
}

Part = Any  # what the scenario tests: a relay, a consumer, a lock key …
Scenario = Callable[[Testbed, Part], Awaitable[list[str]]]  # returns the violations


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`breaks` is the number of the promise in docs/guarantees.md; the check must report exactly what is `expected`."""

    title: str
    breaks: int
    scenario: Scenario
    ours: Part
    mistake: Part
    expected: tuple[str, ...]

    @property
    def name(self) -> str:
        return "-".join(re.findall(r"[a-z]+", self.title.lower().replace("'s", "")))


EXHIBITS: list[Exhibit] = []

# What the checks report
NO_EFFECT = "lost: event 1 was acknowledged and had no effect"
TWO_EFFECTS = "duplicated: event 1 had its effect 2 times"
NOT_PUBLISHED, SECOND_NEITHER = (f"lost: event {number} was committed and never reached the bus" for number in (1, 2))
HELD_UP = "held-up: event 2 waited for a consumer that was busy with event 1"
OUT_OF_ORDER = "out-of-order: event 1 reached the bus after event 2"
TWO_TEXTS = "duplicated: labour.completed was told to the same person 2 times"

P = TypeVar("P")


def exhibit(title: str, scenario: Scenario, ours: Part, breaks: int, *expected: str) -> Callable[[P], P]:
    def register(mistake: P) -> P:
        EXHIBITS.append(Exhibit(title, breaks, scenario, ours, mistake, expected))
        return mistake

    return register


@exhibit("ack on contention", scenarios.the_holder_of_an_event_dies, Consumer, 5, NO_EFFECT)
class AckOnContention(Consumer[Happened]):
    """When another consumer held the event's lock, the message was acknowledged: the event is being handled, so nothing is left
    to do. It looks right because it is, as long as the holder succeeds. When the holder crashes, its work is rolled back, and
    the bus no longer has the event.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        verdicts = await super()._in_one_transaction(events)
        return dict.fromkeys(verdicts, Verdict.ACK)


@exhibit("commit inside the claim", scenarios.a_consumer_dies_after_the_effect, Consumer, 5, NO_EFFECT)
def commit_inside_the_claim(name: str, *, react: React[Happened], **options: Any) -> Consumer[Happened]:
    """A handler, or a repository that it used, committed the transaction it was given. It looks right because transactions should
    be short. But the transaction also holds the claim, so the commit makes the claim permanent and releases the lock. If the
    process then crashes before the effect is committed, the next delivery finds the event claimed and skips it.
    """

    async def react_and_commit(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        await uow.connection.execute("COMMIT; BEGIN")
        return await react(uow, events)

    return Consumer(name, react=react_and_commit, **options)


@exhibit("mark before publish", scenarios.a_relay_dies_on_its_way_to_the_bus, Relay, 2, NOT_PUBLISHED, SECOND_NEITHER)
class MarkBeforePublish(Relay):
    """The relay marked its rows as published, committed, and then published them. It looks right because no event is ever
    published twice, and no transaction is open during a call. A relay that crashes in between leaves rows that are marked and
    were never published.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            rows = await read(connection, "published_at IS NULL ORDER BY position FOR UPDATE SKIP LOCKED")
            await mark(connection, rows)
        await publish(self._publisher, rows)
        return Pass(len(rows))


@exhibit("dedup outside the transaction", scenarios.a_consumer_dies_after_the_effect, Consumer, 4, TWO_EFFECTS)
class DedupOutsideTheTransaction(Consumer[Happened]):
    """The list of handled events was not part of the transaction of the effect: it was in another store, or written by another
    transaction. It looks right because every event is looked up before and recorded afterwards. If the process crashes between
    the commit of the effect and that of the record, the next delivery repeats the effect.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        ids = [event.id for event in events]
        async with self._units_of_work() as uow:
            seen = {row.event_id for row in await claims.rows(uow.connection, ids)}
        async with self._units_of_work() as uow:
            await self._react(uow, [event for event in events if event.id not in seen])
        await AFTER_EFFECT()
        async with self._units_of_work() as uow:
            await claims.claim(uow.connection, self.name, ids)
        return dict.fromkeys(ids, Verdict.ACK)


@exhibit("poll by greatest id", scenarios.an_earlier_number_commits_later, Relay, 2, NOT_PUBLISHED)
class PollByGreatestId(Relay):
    """The relay remembered the greatest id that it had published and queried for greater ones. It looks right because ids only
    increase, and the query needs no extra column and no index. But ids increase in the order of the inserts, not of the
    commits: a transaction that took its id early and commits late becomes visible when the relay is already past its id.
    """

    greatest = 0

    async def run_once(self) -> Pass:
        async with self._engine.connect() as connection:
            rows = await read(connection, f"position > {self.greatest} ORDER BY position")
        await publish(self._publisher, rows)
        self.greatest = max([self.greatest, *(row.position for row in rows)])
        return Pass(len(rows))


@exhibit("deduplicate on the bus's message id", scenarios.an_event_is_published_twice, Consumer, 4, TWO_EFFECTS)
class DeduplicateOnTheMessageId(Consumer[Happened]):
    """The consumer deduplicated by the bus's own message id. It looks right because the bus guarantees that it is unique, and it
    stays the same when a message is delivered again. But each publish gets a new id, and a relay that crashes before it has
    marked an event publishes it a second time: two messages, one event.
    """

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        return await super().handle([replace(one, attributes=self._renamed(one)) for one in messages])

    def _renamed(self, message: Message) -> dict[str, str]:
        event_id = UUID(int=int(message.message_id) | 7 << 76 | 2 << 62)  # a UUIDv7 that contains only the message id
        return message.attributes | {"ce-id": str(event_id)}


@exhibit("Python's hash() as the lock key", scenarios.two_processes_want_the_same_event, lock_key, 5, HELD_UP)
def hash_as_the_lock_key(consumer: str, event_id: UUID) -> int:
    """The key of the advisory lock was computed with `hash()`. It looks right because it has 64 bits and is the same every time,
    within one process. But each process uses another salt, so two processes lock different numbers for the same event. Here the
    primary key of the claim still prevents a second effect, but the second consumer waits for the first one's row, with
    its whole batch, instead of returning the message at once.
    """
    return hash((consumer, str(event_id)))


@exhibit("no ordering across relays", scenarios.a_slow_relay_and_a_quick_one, Relay, 3, OUT_OF_ORDER)
class NoOrderingAcrossRelays(Relay):
    """Several relays shared the outbox by locking rows and skipping those that another relay had locked. It looks right because
    no row is published by two relays, and each relay publishes its rows in order. But the skipped row and the next one may
    belong to the same labour, and the second relay may be faster.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            oldest = f"published_at IS NULL ORDER BY position LIMIT {self._batch_size} FOR UPDATE SKIP LOCKED"
            rows = await read(connection, oldest)
            await publish(self._publisher, rows)
            await mark(connection, rows)
        return Pass(len(rows))


@exhibit("retention shorter than replay", scenarios.an_event_is_replayed_in_time, Retention, 4, TWO_EFFECTS)
class RetentionShorterThanReplay(Retention):
    """Old claims were deleted after a week, while events could be replayed for three months. It looks right because duplicates
    usually come within seconds, and the table grows every day. But a replay is a duplicate, too, and may come months later.
    """

    def __init__(self, engine: AsyncEngine, *, keep: timedelta, replay_horizon: timedelta) -> None:
        super().__init__(engine, keep=keep, replay_horizon=keep)  # the replay horizon is ignored


def write_only(provider: Twilio) -> React[Event]:
    return partial(react_to_batch, wake_dispatcher=lambda: None)


@exhibit("send inside the transaction", scenarios.a_sender_dies_after_the_call, write_only, 6, TWO_TEXTS)
def send_inside_the_transaction(provider: Twilio) -> React[Event]:
    """The text was sent within the transaction that claims the event. It looks right because a transaction happens completely or
    not at all. A rollback undoes the claim and the ledger row; it cannot undo the text, and the next delivery sends another.
    """

    async def write_and_send(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        early = await react_to_batch(uow, events, wake_dispatcher=lambda: None)
        for lease in (await ledger.take(uow, limit=100, lease_seconds=30, call_within=10)).leases:
            outcome = await provider.send(to=lease.phone, body=lease.body, status_callback=scenarios.NO_CALLBACK)
            if isinstance(outcome, Accepted):
                await ledger.apply_one(uow, record_sent(lease.id, sid=outcome.sid))
        return early

    return write_and_send


# ── shared by the relays above ──


async def read(connection: AsyncConnection, condition: str) -> list[Row]:
    columns = "position, topic, ordering_key, CAST(attributes AS text), payload, attempts"
    return [Row(*row) for row in await connection.execute(text(f"SELECT {columns} FROM outbox WHERE {condition}"))]


async def publish(bus: Publisher, rows: Sequence[Row]) -> None:
    await AFTER_READ()
    for row in rows:
        await bus.publish(row.topic, [row.outgoing()])


async def mark(connection: AsyncConnection, rows: Sequence[Row]) -> None:
    for row in rows:
        await connection.execute(text(f"UPDATE outbox SET published_at = now() WHERE position = {row.position}"))
