"""The gallery: ten mistakes, each as small as it can be. What people did, why it looks right, and what happens."""

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
from e2e.experiments.museum import checks
from e2e.experiments.museum.stage import Finding, Stage
from e2e.support.sample_events import Happened
from messaging import claims
from messaging.bus import Message, Publisher
from messaging.claims import lock_key
from messaging.consumer import AFTER_EFFECT, Consumer, React, Received, Verdict
from messaging.relay import Pass, Relay, Row
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from notification.application.batch_reaction import react_to_batch
from notification.delivery import ledger
from notification.delivery.twilio import Accepted, Twilio
from tests.sms_parts import NOWHERE

PROMISES = {
    2: "every committed event reaches the bus",
    3: "the events of a labour are published in the order they happened",
    4: "the effect of an event happens exactly once",
    5: "contention is a nack, and a failure leaves neither claim nor effect",
    6: "a person gets each text at most once",
}

Part = Any  # a relay, a consumer, a lock key …: whatever the scene puts on trial


@dataclass(frozen=True, slots=True)
class Exhibit:
    """`breaks` is the number of the promise in docs/guarantees.md; `expected` is what the check must report, to the letter."""

    title: str
    breaks: int
    check: Callable[[Stage, Part], Awaitable[list[Finding]]]
    ours: Part
    mistake: Part
    expected: tuple[Finding, ...]

    @property
    def name(self) -> str:
        return "-".join(re.findall(r"[a-z]+", self.title.lower().replace("'s", "")))


EXHIBITS: list[Exhibit] = []

P = TypeVar("P")


def exhibit(title: str, *expected: Finding, breaks: int, ours: Part, check: Callable[..., Any]) -> Callable[[P], P]:
    def hang(mistake: P) -> P:
        EXHIBITS.append(Exhibit(title, breaks, check, ours, mistake, expected))
        return mistake

    return hang


@exhibit(
    "ack on contention",
    Finding("lost", "event 1", "was acknowledged and had no effect"),
    breaks=5,
    ours=Consumer,
    check=checks.the_holder_of_an_event_dies,
)
class AckOnContention(Consumer[Happened]):
    """When another consumer held the event's lock, people acked: somebody is at it, so there is nothing left to do. It looks
    right because it is, as long as the holder succeeds. When the holder dies, its work is rolled back, and the ack has told the
    bus to forget the event.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        verdicts = await super()._in_one_transaction(events)
        return dict.fromkeys(verdicts, Verdict.ACK)


@exhibit(
    "commit inside the claim",
    Finding("lost", "event 1", "was acknowledged and had no effect"),
    breaks=5,
    ours=Consumer,
    check=checks.a_consumer_dies_after_the_effect,
)
def commit_inside_the_claim(name: str, *, react: React[Happened], **options: Any) -> Consumer[Happened]:
    """A handler, or a repository it used, committed the session it was given. It looks like tidy work: keep transactions short,
    save what you have. But that session held the claim, so the claim is now for good and the lock is gone; when the process dies
    before the effect is committed, the next delivery finds the event done.
    """

    async def react_and_commit(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        await uow.session.commit()
        return await react(uow, events)

    return Consumer(name, react=react_and_commit, **options)


@exhibit(
    "mark before publish",
    Finding("lost", "event 1", "was committed and never reached the bus"),
    Finding("lost", "event 2", "was committed and never reached the bus"),
    breaks=2,
    ours=Relay,
    check=checks.a_relay_dies_on_its_way_to_the_bus,
)
class MarkBeforePublish(Relay):
    """The relay marked its rows as published, committed, and then published them. It looks right because no event is ever
    published twice, and no transaction is open during a call. A relay that dies in between leaves rows that say "published" and
    a bus that has never heard of them.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            rows = await read(connection, "published_at IS NULL ORDER BY position FOR UPDATE SKIP LOCKED")
            await mark(connection, rows)
        await publish(self._publisher, rows)
        return Pass(len(rows))


@exhibit(
    "dedup outside the transaction",
    Finding("duplicated", "event 1", "had its effect 2 times"),
    breaks=4,
    ours=Consumer,
    check=checks.a_consumer_dies_after_the_effect,
)
class DedupOutsideTheTransaction(Consumer[Happened]):
    """The list of events already seen lived beside the transaction of the effect: in another store, or only in another
    transaction. It looks right because every event is looked up before and written down afterwards. Between the effect's commit
    and the note there is room to die, and then nobody remembers.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        ids = [event.id for event in events]
        async with self._units_of_work() as uow:
            seen = {row.event_id for row in await claims.rows(uow.session, ids)}
        async with self._units_of_work() as uow:
            await self._react(uow, [event for event in events if event.id not in seen])
        await AFTER_EFFECT()
        async with self._units_of_work() as uow:
            await claims.claim(uow.session, self.name, ids)
        return dict.fromkeys(ids, Verdict.ACK)


@exhibit(
    "poll by greatest id",
    Finding("lost", "event 1", "was committed and never reached the bus"),
    breaks=2,
    ours=Relay,
    check=checks.an_earlier_number_commits_later,
)
class PollByGreatestId(Relay):
    """The relay remembered the greatest id it had published and asked for what is above it. It looks right because ids only
    rise, and the query needs no column and no index. But ids rise in the order of the inserts, not of the commits: a
    transaction that took its id early and commits late is behind the mark when it appears.
    """

    greatest = 0

    async def run_once(self) -> Pass:
        async with self._engine.connect() as connection:
            rows = await read(connection, f"position > {self.greatest} ORDER BY position")
        await publish(self._publisher, rows)
        self.greatest = max([self.greatest, *(row.position for row in rows)])
        return Pass(len(rows))


@exhibit(
    "deduplicate on the bus's message id",
    Finding("duplicated", "event 1", "had its effect 2 times"),
    breaks=4,
    ours=Consumer,
    check=checks.an_event_is_published_twice,
)
class DeduplicateOnTheMessageId(Consumer[Happened]):
    """The consumer took the bus's own message id for the identity of the event. It looks right because the bus says that it is
    unique, and it stays the same when a message is delivered again. But the bus gives an id to each publish, and a relay that
    dies before it can mark an event publishes it a second time: two messages, one event.
    """

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        return await super().handle([replace(one, attributes=self._renamed(one)) for one in messages])

    def _renamed(self, message: Message) -> dict[str, str]:
        event_id = UUID(int=int(message.message_id) | 7 << 76 | 2 << 62)  # a UUIDv7 with nothing else in it
        return message.attributes | {"ce-id": str(event_id)}


@exhibit(
    "Python's hash() as the lock key",
    Finding("held-up", "event 2", "waited for a consumer that was busy with event 1"),
    breaks=5,
    ours=lock_key,
    check=checks.two_processes_want_the_same_event,
)
def hash_as_the_lock_key(consumer: str, event_id: UUID) -> int:
    """The number for the advisory lock was made with `hash()`. It looks right because it has 64 bits and is the same every time
    one tries it, in one process. Each process salts it differently, so two of them lock different numbers and nobody meets
    anybody. Here the primary key of the claim still keeps the effect from happening twice, but the second consumer waits for the
    first one's row, with all that is in its batch, where it should have said "not now" at once.
    """
    return hash((consumer, str(event_id)))


@exhibit(
    "no ordering across relays",
    Finding("out-of-order", "event 1", "reached the bus after event 2"),
    breaks=3,
    ours=Relay,
    check=checks.a_slow_relay_and_a_quick_one,
)
class NoOrderingAcrossRelays(Relay):
    """Several relays shared the outbox by locking rows and skipping what another one had locked. It looks right because no row is
    published by two, and each relay goes through its rows in order. But the skipped row and the next one may be of the same
    labour, and the second relay is quicker.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            oldest = f"published_at IS NULL ORDER BY position LIMIT {self._batch_size} FOR UPDATE SKIP LOCKED"
            rows = await read(connection, oldest)
            await publish(self._publisher, rows)
            await mark(connection, rows)
        return Pass(len(rows))


@exhibit(
    "retention shorter than replay",
    Finding("duplicated", "event 1", "had its effect 2 times"),
    breaks=4,
    ours=Retention,
    check=checks.an_event_is_replayed_in_time,
)
class RetentionShorterThanReplay(Retention):
    """Old claims were deleted after a week, while events could be replayed for three months. It looks right because duplicates
    come within seconds, and the table grows every day. A replay is a duplicate too, and it comes when somebody needs it.
    """

    def __init__(self, engine: AsyncEngine, *, keep: timedelta, replay_horizon: timedelta) -> None:
        super().__init__(engine, keep=keep, replay_horizon=keep)  # nobody asks how far back a replay may go


@exhibit(
    "send inside the transaction",
    Finding("duplicated", "labour.completed", "was told to the same person 2 times"),
    breaks=6,
    ours=lambda provider: partial(react_to_batch, wake_dispatcher=lambda: None),
    check=checks.a_sender_dies_after_the_call,
)
def send_inside_the_transaction(provider: Twilio) -> React[Event]:
    """The text was sent in the transaction that claims the event, as if it were one of its rows. It looks right because claim,
    text and note are done together or not at all. A rollback takes back the claim and the note; it cannot take back the text, and
    the next delivery sends another.
    """

    async def write_and_send(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        early = await react_to_batch(uow, events, wake_dispatcher=lambda: None)
        for lease in await ledger.take(uow.session, limit=100, lease_seconds=30, call_within=10):
            outcome = await provider.send(to=lease.phone, body=lease.body, status_callback=NOWHERE)
            if isinstance(outcome, Accepted):
                await ledger.record_sent(uow, lease.id, sid=outcome.sid)
        return early

    return write_and_send


# ── what the relays above have in common ──


async def read(connection: AsyncConnection, condition: str) -> list[Row]:
    columns = "position, topic, ordering_key, attributes, payload, attempts"
    return [Row(*row) for row in await connection.execute(text(f"SELECT {columns} FROM outbox WHERE {condition}"))]


async def publish(bus: Publisher, rows: Sequence[Row]) -> None:
    for row in rows:
        await bus.publish(row.topic, [row.outgoing()])


async def mark(connection: AsyncConnection, rows: Sequence[Row]) -> None:
    for row in rows:
        await connection.execute(text(f"UPDATE outbox SET published_at = now() WHERE position = {row.position}"))
