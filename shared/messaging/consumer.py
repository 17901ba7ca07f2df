"""Turns deliveries into effects: decode, claim, react, complete, commit, acknowledge. Pull and push use the same path.

A batch is one transaction: its claims and effects are committed together. If one event fails, the batch is rolled back and its
halves are handled apart, and so on, so that a bad event affects only itself. The dead letters of a batch are published in bulk,
while its other events are handled.

| outcome                                              | answer to the bus                                      |
|------------------------------------------------------|--------------------------------------------------------|
| handled now, or completed by an earlier delivery     | ack                                                    |
| another consumer holds the event, or it is too early | nack: redelivered after the subscription's backoff     |
| the reaction failed                                  | nack; dead-lettered from delivery `max_attempts` on    |
| the message cannot be decoded (`Undecodable`)        | dead-lettered at once, with its reason                 |
| the database is unavailable, read-only or full       | none: the lease is kept, and the batch is retried      |
"""

import asyncio
import logging
import time
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct
from structlog import get_logger

from messaging import metrics, telemetry
from messaging.bus import Message, Publisher
from messaging.claims import Claim, ClaimStrategy, ProcessedEvents
from messaging.database import describe, is_transient
from messaging.dead_letters import NAMED, Dead, DeadLetters
from messaging.envelope import Envelope, open_envelope
from messaging.errors import ReactionsFailed, Undecodable
from messaging.faults import FaultPoint
from messaging.progress import Outage
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

log = get_logger()

AFTER_RECEIVE = FaultPoint("consumer.after_receive_before_claim", "messages are leased, nothing is claimed")
AFTER_CLAIM = FaultPoint("consumer.after_claim_before_effect", "events are claimed, their effects are not written")
AFTER_EFFECT = FaultPoint("consumer.after_effect_before_complete", "effects are written, the claims are not completed")
AFTER_COMMIT = FaultPoint("consumer.after_commit_before_ack", "claims and effects are committed, not acknowledged")

LAST_DELIVERY = 100  # `max_delivery_attempts` of infra/topology.toml: after a nack of it the bus dead-letters a message
SMALL = 8  # a failed batch of this size or less is handled one by one
REMEMBERED = 10_000  # failed events whose ids are kept, so that they are not tried together with others again

E = TypeVar("E")


class Verdict(Enum):
    ACK = "ack"
    NACK = "nack"


class Received(Struct, Generic[E], frozen=True):
    """A decoded event with its envelope. `copies` is the number of its deliveries in the batch."""

    id: UUID
    envelope: Envelope
    event: E
    message_id: str = ""
    copies: int = 1


class React(Protocol[E]):
    """Writes the effects of events through the unit of work, and returns the ids of events that arrived too early.

    After an error the batch is rolled back and handled in parts. If the reaction knows which events have failed, it raises
    `ReactionsFailed`, and the others are handled together at once.
    """

    async def __call__(self, uow: UnitOfWork, events: Sequence[Received[E]], /) -> Collection[UUID]: ...


class Consumer(Generic[E]):
    """`name` scopes claims and is the first part of its subscriptions' names: `<name>.<topic>`.

    max_attempts   deliveries after which a failing event is dead-lettered (10). The subscription's own limit (LAST_DELIVERY)
                   applies to events that stay too early: the bus dead-letters them, and the consumer only counts them.
    claims         how the consumer knows which events it has handled: a row for each event (`ProcessedEvents`), or the last
                   sequence of each labour (`messaging.watermarks`)
    """

    def __init__(
        self,
        name: str,
        *,
        units_of_work: UnitsOfWork,
        decode: Callable[[Envelope], E],
        react: React[E],
        publisher: Publisher,
        max_attempts: int = 10,
        claims: ClaimStrategy | None = None,
    ) -> None:
        self.name, self._claims = name, claims or ProcessedEvents()
        self._units_of_work, self._decode, self._react = units_of_work, decode, react
        self._dead_letters, self._max_attempts = DeadLetters(name, publisher), max_attempts
        self._failed = dict[UUID, None]()  # the oldest first
        self._database = Outage("database")
        metrics.consumer_starts(name)

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        """Handle a batch and return one verdict for each message, in order. All effects are committed when it returns."""
        await AFTER_RECEIVE()
        started, poison = time.perf_counter(), list[Dead]()
        deliveries = defaultdict[UUID, list[Message]](list)  # a batch may contain several deliveries of one event
        events = dict[UUID, Received[E]]()
        for message in messages:
            try:
                envelope = open_envelope(message.attributes, message.data)
                event = self._decode(envelope)
                (copies := deliveries[envelope.id]).append(message)
                events[envelope.id] = Received(envelope.id, envelope, event, message.message_id, len(copies))
            except Undecodable as error:
                poison.append(Dead(message, error.reason, error.detail))

        outcomes, dead = await asyncio.gather(
            self._handle_events(list(events.values())), self._dead_letters.publish(poison)
        )
        await AFTER_COMMIT()
        verdicts = {one.message.ack_id: _stored(one.message, dead) for one in poison}
        failures = list[tuple[Message, Exception]]()
        for event_id, copies in deliveries.items():
            outcome = outcomes[event_id]
            for message in copies:
                if isinstance(outcome, Exception):
                    failures.append((message, outcome))
                else:
                    verdicts[message.ack_id] = outcome
        if failures:
            verdicts |= await self._after_failures(failures)
        origins = (event.envelope.traceparent for event in events.values())
        metrics.batch_processed(self.name, len(messages), started, origins)
        last = [one for one in messages if one.delivery_attempt >= LAST_DELIVERY]
        self._dead_letters.leave_to_the_bus([one for one in last if verdicts[one.ack_id] is Verdict.NACK])
        return [verdicts[message.ack_id] for message in messages]

    async def _handle_events(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict | Exception]:
        """Events that have failed before are handled last, each alone: they would fail every batch that they are in."""
        outcomes = await self._bisect([event for event in events if event.id not in self._failed])
        for event in events:
            if event.id not in outcomes:
                outcomes |= await self._bisect([event])
        self._remember(outcomes)
        return outcomes

    async def _bisect(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict | Exception]:
        """Handle events in one transaction. If it fails, handle each half in one of its own, down to single events: of 250, one
        that fails is found in about 20 transactions.
        """
        if not events:
            return {}
        try:
            return dict(await self._patiently(events))
        except ReactionsFailed as failed:
            return {**failed.errors, **await self._bisect([event for event in events if event.id not in failed.errors])}
        except Exception as error:
            if len(events) == 1:
                return {events[0].id: error}
            log.debug("batch failed, handling it in parts", size=len(events), error=type(error).__name__)
        size = -(-len(events) // 2) if len(events) > SMALL else 1
        outcomes = dict[UUID, Verdict | Exception]()
        for start in range(0, len(events), size):
            outcomes |= await self._bisect(events[start : start + size])
        return outcomes

    def _remember(self, outcomes: Mapping[UUID, Verdict | Exception]) -> None:
        for event_id, outcome in outcomes.items():
            self._failed.pop(event_id, None)
            if isinstance(outcome, Exception):
                self._failed[event_id] = None
        while len(self._failed) > REMEMBERED:
            del self._failed[next(iter(self._failed))]

    async def _patiently(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict]:
        """Retry while the database is unavailable. The messages stay leased: a nack would only use up their deliveries."""
        while True:
            try:
                verdicts = await self._in_one_transaction(events)
                self._database.over()
                return verdicts
            except Exception as error:
                if not is_transient(error):
                    raise
                await asyncio.sleep(self._database.failed(describe(error)))

    async def _in_one_transaction(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict]:
        def about() -> telemetry.Attributes:
            one, topics = events[0], {event.envelope.type for event in events}
            return telemetry.messaging_attributes(
                "process", "process", topics, len(events), one.id, one.envelope.subject, one.message_id, self.name
            )

        origins = [event.envelope.traceparent for event in events]
        with telemetry.batch(f"process {self.name}", telemetry.CONSUMER, origins, about) as spans:
            return await self._claim_and_react(events, spans)

    async def _claim_and_react(self, events: Sequence[Received[E]], spans: telemetry.Spans) -> dict[UUID, Verdict]:
        async with self._units_of_work() as uow:
            claimed = await self._claims.claim(uow.connection, self.name, events)
            granted = [event for event in events if claimed[event.id] is Claim.GRANTED]
            granted.sort(key=lambda event: event.envelope.sequence or 0)  # of one labour, in the order they happened
            await AFTER_CLAIM()
            early = frozenset(await self._react(uow, granted)) if granted else frozenset()
            await AFTER_EFFECT()
            if early:
                await self._claims.release(uow.connection, self.name, [one for one in granted if one.id in early])
            await self._claims.complete(uow.connection, self.name, [one for one in granted if one.id not in early])

        verdicts = {event.id: _verdict(claimed[event.id], early=event.id in early) for event in events}
        counts = Counter(granted=len(granted)) if granted else Counter[str]()
        if len(granted) < len(events):
            counts += Counter(claim.name.lower() for claim in claimed.values() if claim is not Claim.GRANTED)
        if spans:
            spans.set({f"fern.claims.{name}": count for name, count in (counts | {"early": len(early)}).items()})
        metrics.batch_committed(self.name, events, claimed, early, granted=len(granted))
        _log_batch(self.name, events, claimed, early, verdicts, counts)
        return verdicts

    async def _after_failures(self, failures: Sequence[tuple[Message, Exception]]) -> dict[str, Verdict]:
        """Nack what has failed, or dead-letter it from delivery `max_attempts` on."""
        kinds = defaultdict[type[Exception], list[tuple[Message, Exception]]](list)
        for message, error in failures:
            kinds[type(error)].append((message, error))
        for group in kinds.values():
            log.error(
                "reaction failed",
                count=len(group),
                type=group[0][0].attributes.get("ce-type"),
                event_ids=[message.attributes.get("ce-id") for message, _ in group[:NAMED]],
                delivery_attempt=max(message.delivery_attempt for message, _ in group),
                exc_info=group[0][1],
            )
        dead = await self._dead_letters.publish(
            [
                Dead(message, "reaction-failed", f"{type(error).__name__}: {error}")
                for message, error in failures
                if message.delivery_attempt >= self._max_attempts
            ]
        )
        metrics.events_consumed(self.name, "failed", len(failures) - len(dead))
        return {message.ack_id: _stored(message, dead) for message, _ in failures}


def _log_batch(
    consumer: str,
    events: Sequence[Received[E]],
    claimed: Mapping[UUID, Claim],
    early: Collection[UUID],
    verdicts: Mapping[UUID, Verdict],
    counts: Mapping[str, int],
) -> None:
    """One line for the batch; at DEBUG also one for each event, which costs a sixth of the consumer's CPU time."""
    log.info("batch handled", consumer=consumer, events=len(events), early=len(early), **counts)
    if not log.is_enabled_for(logging.DEBUG):
        return
    for event in events:
        log.debug(
            "event handled" if verdicts[event.id] is Verdict.ACK else "event put back",
            event_id=str(event.id),
            type=event.envelope.type,
            claim=claimed[event.id].value,
            early=event.id in early,
        )


def _stored(message: Message, dead: Collection[str]) -> Verdict:
    return Verdict.ACK if message.ack_id in dead else Verdict.NACK


def _verdict(claim: Claim, *, early: bool) -> Verdict:
    match claim:
        case Claim.GRANTED:
            return Verdict.NACK if early else Verdict.ACK
        case Claim.ALREADY_COMPLETED:
            return Verdict.ACK
        case Claim.HELD_ELSEWHERE | Claim.TOO_EARLY:
            return Verdict.NACK


def decoder(
    topics: Collection[str], decode: Callable[[str, int, bytes], E], reasons: Mapping[type[Exception], str]
) -> Callable[[Envelope], E]:
    """Adapt a service's decoding to `Consumer`: return an event, or raise `Undecodable` with a stable reason."""

    def decode_envelope(envelope: Envelope) -> E:
        if envelope.type not in topics:
            raise Undecodable("unknown-type", "this consumer does not handle this event type")
        try:
            return decode(envelope.type, envelope.version, envelope.data)
        except tuple(reasons) as error:
            raise Undecodable(reasons[type(error)], str(error)) from None

    return decode_envelope


Handle = Callable[[Sequence[Message]], Awaitable[list[Verdict]]]
