"""Mistakes of a consumer."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

from msgspec import structs
from sqlalchemy.ext.asyncio import AsyncEngine

from contracts.events import Event, LabourCompleted
from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import consumers as scenarios
from e2e.experiments.museum.testbed import our_reaction
from e2e.support.sample_events import Happened
from messaging import claims
from messaging.bus import Message
from messaging.claims import lock_key
from messaging.consumer import AFTER_EFFECT, Consumer, React, Received, Verdict
from messaging.pubsub import PubSub
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork

NO_EFFECT, SECOND_WITHOUT, THIRD_WITHOUT = (
    f"lost: event {number} was acknowledged and had no effect" for number in (1, 2, 3)
)
TWO_EFFECTS = "duplicated: event 1 had its effect 2 times"
HELD_UP = "held-up: event 2 waited for a consumer that was busy with event 1"
NOT_TOLD = "lost: Grace is on the roster and is not told"


@exhibit("ack on contention", scenarios.the_holder_of_an_event_dies, Consumer, 5, NO_EFFECT)
class AckOnContention(Consumer[Happened]):
    """When another consumer held the event's lock, the message was acknowledged. It looks right because the other
    consumer is handling the event, so nothing is left to do. But if that consumer crashes, its work is rolled back, and
    the bus no longer has the event.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        verdicts = await super()._in_one_transaction(events)
        return dict.fromkeys(verdicts, Verdict.ACK)


@exhibit("ack before the commit", scenarios.a_consumer_dies_after_the_effect, Consumer, 4, NO_EFFECT)
class AckBeforeTheCommit(Consumer[Happened]):
    """The message was acknowledged when it was received, as many clients do unless they are told otherwise. It looks
    right because the bus then never delivers twice. If the process crashes before the commit, the bus does not deliver
    again either: this is at most once.
    """

    def __init__(self, name: str, *, publisher: PubSub, **options: Any) -> None:
        super().__init__(name, publisher=publisher, **options)
        self._bus = publisher

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        for message in messages:
            await self._bus.acknowledge(message.subscription, [message.ack_id])
        return await super().handle(messages)


@exhibit("commit inside the claim", scenarios.a_consumer_dies_after_the_effect, Consumer, 5, NO_EFFECT)
def commit_inside_the_claim(name: str, *, react: React[Happened], **options: Any) -> Consumer[Happened]:
    """A handler, or a repository that it used, committed the transaction it was given. It looks right because
    transactions should be short. But the transaction also holds the claim, so the commit makes the claim permanent and
    releases the lock. If the process then crashes before the effect is committed, the next delivery finds the event
    claimed and skips it.
    """

    async def react_and_commit(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        await uow.connection.execute("COMMIT; BEGIN")
        return await react(uow, events)

    return Consumer(name, react=react_and_commit, **options)


@exhibit("dedup outside the transaction", scenarios.a_consumer_dies_after_the_effect, Consumer, 4, TWO_EFFECTS)
class DedupOutsideTheTransaction(Consumer[Happened]):
    """The list of handled events was not part of the transaction of the effect: it was in another store, or written by
    another transaction. It looks right because every event is looked up before its effect and recorded after it. If the
    process crashes between the commit of the effect and that of the record, the next delivery repeats the effect.
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


@exhibit("SELECT, then write", scenarios.two_consumers_get_the_same_event, Consumer, 4, TWO_EFFECTS)
class SelectThenWrite(Consumer[Happened]):
    """The consumer looked for the claim, wrote the effect if there was none, and then wrote the claim. It looks right
    because all three statements are one transaction. But a transaction does not see what another one has not committed
    yet: two consumers that look at the same time both find nothing.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        ids = [event.id for event in events]
        async with self._units_of_work() as uow:
            handled = {row.event_id for row in await claims.rows(uow.connection, ids)}
            await self._react(uow, [event for event in events if event.id not in handled])
            await AFTER_EFFECT()
            await claims.claim(uow.connection, self.name, ids)
        return dict.fromkeys(ids, Verdict.ACK)


@exhibit("unlock before the commit", scenarios.two_consumers_get_the_same_event, Consumer, 4, TWO_EFFECTS)
class UnlockBeforeTheCommit(Consumer[Happened]):
    """The advisory lock belonged to the session, and a `finally` released it. It looks right because a lock must not
    outlive the work that it protects. But the work needs that protection until its commit. After the early release a
    second consumer gets the lock, does not see the uncommitted claim, and writes the effect again; the primary key of
    the claim stops it only afterwards. A lock of the transaction (`pg_advisory_xact_lock`) cannot be released early.
    """

    async def _in_one_transaction(self, events: Sequence[Received[Happened]]) -> dict[UUID, Verdict]:
        claim = "INSERT INTO processed_event (consumer, event_id, status) VALUES ($1, $2, 'COMPLETED') ON CONFLICT DO NOTHING"
        async with self._units_of_work() as uow:
            for event in events:
                await uow.connection.execute("SELECT pg_advisory_lock($1)", lock_key(self.name, event.id))
                try:
                    if not await claims.rows(uow.connection, [event.id]):
                        await self._react(uow, [event])
                        await uow.connection.execute(claim, self.name, event.id)
                finally:
                    await uow.connection.execute("SELECT pg_advisory_unlock($1)", lock_key(self.name, event.id))
            await AFTER_EFFECT()
        return dict.fromkeys([event.id for event in events], Verdict.ACK)


@exhibit("deduplicate on the bus's message id", scenarios.an_event_is_published_twice, Consumer, 4, TWO_EFFECTS)
class DeduplicateOnTheMessageId(Consumer[Happened]):
    """The consumer deduplicated by the bus's own message id. It looks right because the bus guarantees that it is
    unique, and it stays the same when a message is delivered again. But each publish gets a new id, and a relay that
    crashes before it has marked an event publishes it a second time: two messages, one event.
    """

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        return await super().handle([replace(one, attributes=self._renamed(one)) for one in messages])

    def _renamed(self, message: Message) -> dict[str, str]:
        event_id = UUID(int=int(message.message_id) | 7 << 76 | 2 << 62)  # a UUIDv7 that contains only the message id
        return message.attributes | {"ce-id": str(event_id)}


@exhibit("deduplicate on the time", scenarios.two_events_have_the_same_time, Consumer, 4, SECOND_WITHOUT)
class DeduplicateOnTheTime(Consumer[Happened]):
    """The consumer deduplicated by the time of the event. It looks right because the time is in every envelope, and
    stays the same however often an event is published. But two things can happen at the same time, and the second was
    taken for a repetition of the first.
    """

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        return await super().handle([replace(one, attributes=self._renamed(one)) for one in messages])

    def _renamed(self, message: Message) -> dict[str, str]:
        milliseconds = int(datetime.fromisoformat(message.attributes["ce-time"]).timestamp() * 1000)
        event_id = UUID(int=milliseconds << 80 | 7 << 76 | 2 << 62)  # a UUIDv7 that contains only the time
        return message.attributes | {"ce-id": str(event_id)}


@exhibit("the last sequence of the source", scenarios.two_labours_take_turns, Consumer, 4, THIRD_WITHOUT)
class LastSequenceOfTheSource(Consumer[Happened]):
    """The consumer remembered the last sequence of the source, and dropped every event up to it. It looks right because
    sequences only rise, and no table of ids is needed. But each labour has a sequence of its own. One sequence for all
    labours would not help either: a number is taken before the commit, so an event with a lower number can be published
    after one with a higher number.
    """

    def __init__(self, name: str, **options: Any) -> None:
        super().__init__(name, **options)
        self._last = dict[str, int]()

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        fresh = list[Message]()
        for message in messages:
            source, sequence = message.attributes["ce-source"], int(message.attributes["ce-sequence"])
            if sequence > self._last.get(source, 0):
                self._last[source] = sequence
                fresh.append(message)
        verdicts = {one.ack_id: verdict for one, verdict in zip(fresh, await super().handle(fresh), strict=True)}
        return [verdicts.get(message.ack_id, Verdict.ACK) for message in messages]


@exhibit("Python's hash() as the lock key", scenarios.two_processes_want_the_same_event, lock_key, 5, HELD_UP)
def hash_as_the_lock_key(consumer: str, event_id: UUID) -> int:
    """The key of the advisory lock was computed with `hash()`. It looks right because it has 64 bits and is the same
    every time, within one process. But each process uses another salt, so two processes lock different numbers for the
    same event. Here the primary key of the claim still prevents a second effect, but the second consumer waits for the
    first one's row, with its whole batch, instead of returning the message at once.
    """
    return hash((consumer, str(event_id)))


@exhibit("retention shorter than replay", scenarios.an_event_is_replayed_in_time, Retention, 4, TWO_EFFECTS)
class RetentionShorterThanReplay(Retention):
    """Old claims were deleted after a week, while events could be replayed for three months. It looks right because
    duplicates usually come within seconds, and the table grows every day. But a replay is a duplicate, too, and may
    come months later.
    """

    def __init__(self, engine: AsyncEngine, *, keep: timedelta, replay_horizon: timedelta) -> None:
        super().__init__(engine, keep=keep, replay_horizon=keep)  # the replay horizon is ignored


@exhibit("tell those who are known", scenarios.a_birth_overtakes_a_subscription, our_reaction, 6, NOT_TOLD)
async def tell_those_who_are_known(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
    """The reaction notified each person who was on the roster at that moment. It looks right because the roster is read
    in the same transaction. But events of different topics arrive in any order, so the event of a person who subscribed
    before the birth may arrive after the birth. Our events name the roster version that they were made under, and the
    consumer nacks them until the roster has that version.
    """
    unversioned = [
        structs.replace(one, event=structs.replace(one.event, roster_version=0))
        if isinstance(one.event, LabourCompleted)
        else one
        for one in events
    ]
    return await our_reaction(uow, unversioned)
