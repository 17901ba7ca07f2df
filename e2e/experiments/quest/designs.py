"""Six designs that tell a person that a labour is complete, from naive to ours, built from the same parts: the Labour aggregate,
two real databases, the bus, and the client of the SMS provider.

A design says what happens to a request (`complete`), what happens to a delivery (`handle`), and what runs in the background
(`processes`). No design contains a fault: faults happen in the parts (see `faults`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from contracts.events import LabourCompleted
from contracts.registry import decode
from labour.application.access import CommandContext
from labour.application.command_runner import CommandRunner
from labour.application.commands import complete_labour
from labour.storage import Labours
from messaging import claims
from messaging.aggregate import Recorded
from messaging.bus import Message, Outgoing
from messaging.claims import Claim
from messaging.consumer import Verdict
from messaging.envelope import attributes, open_envelope
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork
from notification.consumer import NAME, create_consumer
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Accepted, Twilio
from notification.domain import wording
from servicekit.idempotency import Answer, Key

TIMEOUT, LEASE, QUARANTINE = 2.0, 3.0, 1.0  # seconds, of our design; short, so that unknown outcomes are resolved soon
CALLBACK = "http://127.0.0.1:9/"  # nothing listens there: without callbacks, our design has to ask the provider

_PHONES = text("SELECT phone FROM roster_member WHERE labour_id = :labour_id")

BackgroundProcess = Callable[
    [asyncio.Event], Awaitable[None]
]  # runs until the event is set; after a crash it is started again


class NotAccepted(Exception):
    """The provider did not confirm the text. Whether it sent it is unknown."""


@dataclass(frozen=True, slots=True)
class Parts:
    """What every design is built from. `dispatcher` creates the dispatcher of our design."""

    labour: AsyncEngine
    notification: AsyncEngine
    bus: PubSub
    sms: Twilio
    dispatcher: Callable[..., Dispatcher]

    def labour_work(self) -> UnitOfWork:
        return UnitOfWork(self.labour, source="labour", committed=lambda: None)

    def notification_work(self) -> UnitOfWork:
        return UnitOfWork(self.notification, source="notification", committed=lambda: None)

    async def publish(self, events: Sequence[Recorded]) -> None:
        for happened in events:
            context = attributes(
                id=happened.id,
                source="labour",
                type=happened.event.type,
                version=happened.event.version,
                subject=happened.key,
                time=happened.occurred_at,
                traceparent=None,
            )
            await self.bus.publish(happened.event.type, [Outgoing(msgspec.json.encode(happened.event), context)])

    async def send_texts(self, message: Message) -> None:
        """Send one text to each person on the labour's list."""
        event = decode("labour.completed", 1, message.data)
        assert isinstance(event, LabourCompleted)
        async with self.notification.connect() as connection:
            phones = (await connection.execute(_PHONES, {"labour_id": event.labour_id})).scalars().all()
        body = wording.write(event.type, mother_name=event.mother_name, notification_id=event_id(message))
        for phone in phones:
            if not isinstance(await self.sms.send(to=phone, body=body, status_callback=CALLBACK), Accepted):
                raise NotAccepted


def mother_id(labour_id: UUID) -> str:
    """The user id of the labour's mother. Each labour has another one."""
    return str(labour_id)


def event_id(message: Message) -> UUID:
    return open_envelope(message.attributes, message.data).id


class DualWrite:
    """*Commit, then publish.* The assumption: both calls nearly always succeed, and a failed request is simply repeated.

    It fails between the two. If the publish fails, or the process dies before it, the labour is complete and no event says so;
    repeating the request is refused, because the labour is complete. And each delivery sends a text, however often the bus
    delivers.
    """

    name: ClassVar[str] = "dual write"
    timeout: ClassVar[float] = 30.0  # seconds of a call to the provider

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def complete(self, labour_id: UUID) -> None:
        async with self.parts.labour_work() as uow:
            completed = await self.complete_and_collect(uow, labour_id)
        await self.parts.publish(completed)

    async def complete_and_collect(self, uow: UnitOfWork, labour_id: UUID) -> Sequence[Recorded]:
        """Complete the labour, and take its events from the unit of work, so that none is written into the outbox."""
        labour = await Labours(uow).get(labour_id)
        labour.complete(datetime.now(UTC))
        return labour.collect()

    async def handle(self, message: Message) -> Verdict:
        await self.parts.send_texts(message)
        return Verdict.ACK

    def processes(self) -> Sequence[BackgroundProcess]:
        return ()


class PublishThenCommit(DualWrite):
    """*Publish, then commit.* The assumption: if publishing fails, nothing has happened yet, so nothing can be lost.

    It fails in the same place, in the opposite direction. If the commit fails, people are told of a birth that was never
    recorded; and if the request is repeated with success, a second event, with another id, tells them again.
    """

    name = "publish, then commit"

    async def complete(self, labour_id: UUID) -> None:
        async with self.parts.labour_work() as uow:
            await self.parts.publish(await self.complete_and_collect(uow, labour_id))


class NaiveConsumer(DualWrite):
    """*Outbox: change and event in one transaction, published later by a relay.* The assumption: this solves it.

    It solves half: no event is lost or invented. But the relay publishes again what it could not mark as published, the bus
    delivers again what was not acknowledged, and each delivery sends a text.
    """

    name = "outbox, naive consumer"

    async def complete(self, labour_id: UUID) -> None:
        async with self.parts.labour_work() as uow:
            await complete_labour(CommandContext(uow, mother_id(labour_id)), labour_id)

    def processes(self) -> Sequence[BackgroundProcess]:
        # One event at a time, so that a crash of the relay hits only the labour that it was drawn for.
        return (Relay(self.parts.labour, self.parts.bus, batch_size=1, passes=1, poll_interval=0.05).run,)


class SendInTheClaim(NaiveConsumer):
    """*Claim the event, send the text, commit.* The assumption: claim and effect are one transaction, so the effect is once.

    That holds for effects in the database, and a text is not in the database. If the transaction is rolled back after the call,
    or the call's answer is lost, the claim is gone, the text is not, and the next delivery sends another.
    """

    name = "claims, send inside"

    async def handle(self, message: Message) -> Verdict:
        event = event_id(message)
        async with self.parts.notification_work() as uow:
            claim = (await claims.claim(uow.connection, NAME, [event]))[event]
            if claim is Claim.GRANTED:
                await self.parts.send_texts(message)
                await claims.complete(uow.connection, NAME, [event])
        return Verdict.NACK if claim is Claim.HELD_ELSEWHERE else Verdict.ACK


class RecordBeforeSend(NaiveConsumer):
    """*Claim the event, commit, then send.* The assumption: no text is better than two, and it will hardly ever be none.

    The record says that the text was sent, and nothing checks it. A crash or a lost request between the commit and the provider
    is never noticed, so the text is never sent.
    """

    name = "record, then send"

    async def handle(self, message: Message) -> Verdict:
        event = event_id(message)
        async with self.parts.notification_work() as uow:
            claim = (await claims.claim(uow.connection, NAME, [event]))[event]
            if claim is Claim.GRANTED:
                await claims.complete(uow.connection, NAME, [event])
        if claim is Claim.GRANTED:
            await self.parts.send_texts(message)
        return Verdict.NACK if claim is Claim.HELD_ELSEWHERE else Verdict.ACK


class Ours(NaiveConsumer):
    """*Outbox; claim and ledger row in one transaction; a dispatcher that records each call before it makes it, and a reconciler
    that asks the provider when the outcome of a call is unknown.* The services' own code, unchanged. A repeated request of the
    client is recognised by its idempotency key.
    """

    name = "ours"
    timeout = TIMEOUT

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        work = parts.notification_work
        self.dispatcher = parts.dispatcher(
            work,
            parts.sms,
            callback_url=CALLBACK,
            lease_seconds=LEASE,
            call_within=(LEASE - TIMEOUT) / 2,
            poll_interval=0.2,
        )
        self.reconciler = Reconciler(work, parts.sms, policies={}, quarantine=QUARANTINE, ask_interval=QUARANTINE / 10)
        self.consumer = create_consumer(work, parts.bus, wake_dispatcher=self.dispatcher.wake)

    async def complete(self, labour_id: UUID) -> None:
        caller = mother_id(labour_id)
        key = Key(caller, key="complete", request=b"PUT complete")
        runner = CommandRunner(self.parts.labour_work, caller, key)
        await runner.run(lambda context: complete_labour(context, labour_id), lambda labour: Answer(200, {}, b""))

    async def handle(self, message: Message) -> Verdict:
        return (await self.consumer.handle([message]))[0]

    def processes(self) -> Sequence[BackgroundProcess]:
        return (*super().processes(), self.dispatcher.run, self.reconciler.run)


Design = DualWrite  # the base class of all designs
DESIGNS = (DualWrite, PublishThenCommit, NaiveConsumer, SendInTheClaim, RecordBeforeSend, Ours)
