"""Turns deliveries into effects: decode, claim, react, complete, commit, acknowledge. Pull and push use the same path.

A batch is one transaction: its claims and effects are committed together. If one event fails, the batch is rolled back and its
events are handled one by one, so that a bad event affects only itself.

| outcome                                              | answer to the bus                                      |
|------------------------------------------------------|--------------------------------------------------------|
| handled now, or completed by an earlier delivery     | ack                                                    |
| another consumer holds the event, or it is too early | nack: redelivered after the subscription's backoff     |
| the reaction failed                                  | nack; dead-lettered from delivery `max_attempts` on    |
| the message cannot be decoded (`Undecodable`)        | dead-lettered at once, with its reason                 |
| the database is unavailable                          | none: the lease is kept, and the batch is retried      |
"""

import asyncio
from collections import defaultdict
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from enum import Enum
from typing import Generic, Protocol, TypeVar
from uuid import UUID

from msgspec import Struct
from structlog import get_logger

from messaging.backoff import Backoff
from messaging.bus import Message, Outgoing, Publisher
from messaging.claims import Claim, ClaimStrategy, ProcessedEvents
from messaging.database import is_transient
from messaging.envelope import Envelope, open_envelope
from messaging.errors import BusUnavailable, PublishRejected, Undecodable
from messaging.faults import FaultPoint
from messaging.masking import mask
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

log = get_logger()

AFTER_RECEIVE = FaultPoint("consumer.after_receive_before_claim", "messages are leased, nothing is claimed")
AFTER_CLAIM = FaultPoint("consumer.after_claim_before_effect", "events are claimed, their effects are not written")
AFTER_EFFECT = FaultPoint("consumer.after_effect_before_complete", "effects are written, the claims are not completed")
AFTER_COMMIT = FaultPoint("consumer.after_commit_before_ack", "claims and effects are committed, the bus does not know")

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
    """Writes the effects of events through the unit of work, and returns the ids of events that arrived too early."""

    async def __call__(self, uow: UnitOfWork, events: Sequence[Received[E]], /) -> Collection[UUID]: ...


class Consumer(Generic[E]):
    """`name` scopes claims and is the first part of its subscriptions' names: `<name>.<topic>`.

    max_attempts   deliveries after which a failing event is dead-lettered (10). The subscription's own limit (100) applies to
                   events that stay too early.
    claims         how it knows which events it has handled: a row for each (`ProcessedEvents`), or the last sequence of each
                   labour (`messaging.watermarks`)
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
        self._publisher, self._max_attempts = publisher, max_attempts

    async def handle(self, messages: Sequence[Message]) -> list[Verdict]:
        """Handle a batch and return one verdict for each message, in order. All effects are committed when it returns."""
        await AFTER_RECEIVE()
        verdicts = dict[str, Verdict]()
        deliveries = defaultdict[UUID, list[Message]](list)  # a batch may contain several deliveries of one event
        events = dict[UUID, Received[E]]()
        for message in messages:
            try:
                envelope = open_envelope(message.attributes, message.data)
                event = self._decode(envelope)
                (copies := deliveries[envelope.id]).append(message)
                events[envelope.id] = Received(envelope.id, envelope, event, message.message_id, len(copies))
            except Undecodable as error:
                verdicts[message.ack_id] = await self._dead_letter(message, error.reason, error.detail)

        outcomes = await self._handle_events(list(events.values()))
        await AFTER_COMMIT()
        for event_id, copies in deliveries.items():
            outcome = outcomes[event_id]
            for message in copies:
                verdicts[message.ack_id] = (
                    await self._after_failure(message, outcome) if isinstance(outcome, Exception) else outcome
                )
        return [verdicts[message.ack_id] for message in messages]

    async def _handle_events(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict | Exception]:
        if not events:
            return {}
        try:
            return dict(await self._patiently(events))
        except Exception as error:
            if len(events) == 1:
                return {events[0].id: error}
            log.warning("batch failed, retrying its events one by one", size=len(events), error=type(error).__name__)
        outcomes: dict[UUID, Verdict | Exception] = {}
        for event in events:
            try:
                outcomes.update(await self._patiently([event]))
            except Exception as error:
                outcomes[event.id] = error
        return outcomes

    async def _patiently(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict]:
        """Retry while the database is unavailable. The messages stay leased: a nack would only use up their deliveries."""
        backoff = Backoff()
        while True:
            try:
                return await self._in_one_transaction(events)
            except Exception as error:
                if not is_transient(error):
                    raise
                pause = backoff.next()
                log.warning("database unavailable", error=type(error).__name__, retry_in=round(pause, 2))
                await asyncio.sleep(pause)

    async def _in_one_transaction(self, events: Sequence[Received[E]]) -> dict[UUID, Verdict]:
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

        verdicts, info = dict[UUID, Verdict](), log.info
        for event in events:
            verdicts[event.id] = verdict = _verdict(claimed[event.id], early=event.id in early)
            info(
                "event handled" if verdict is Verdict.ACK else "event put back",
                event_id=str(event.id),
                type=event.envelope.type,
                claim=claimed[event.id].value,
                early=event.id in early,
                traceparent=event.envelope.traceparent,
            )
        return verdicts

    async def _after_failure(self, message: Message, error: Exception) -> Verdict:
        log.error(
            "reaction failed",
            event_id=message.attributes.get("ce-id"),
            type=message.attributes.get("ce-type"),
            delivery_attempt=message.delivery_attempt,
            exc_info=error,
        )
        if message.delivery_attempt < self._max_attempts:
            return Verdict.NACK
        return await self._dead_letter(message, "reaction-failed", f"{type(error).__name__}: {error}")

    async def _dead_letter(self, message: Message, reason: str, detail: str) -> Verdict:
        """Publish to `<topic>.dlq`, then acknowledge. A crash in between dead-letters the message twice and loses nothing."""
        topic = message.subscription.removeprefix(f"{self.name}.")
        why = {
            "dead-letter-reason": reason,
            "dead-letter-detail": mask(detail)[:250],
            "dead-letter-consumer": self.name,
            "dead-letter-topic": topic,
            "dead-letter-message-id": message.message_id,
        }
        try:
            try:
                await self._publisher.publish(f"{topic}.dlq", [Outgoing(message.data, {**message.attributes, **why})])
            except PublishRejected:  # its attributes leave no room for ours, and the reason matters more
                await self._publisher.publish(f"{topic}.dlq", [Outgoing(message.data, why)])
        except (BusUnavailable, PublishRejected) as error:
            log.error("could not dead-letter a message", topic=topic, reason=reason, error=str(error)[:300])
            return Verdict.NACK
        log.error(
            "message dead-lettered", topic=topic, reason=reason, detail=detail[:250], message_id=message.message_id
        )
        return Verdict.ACK


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
