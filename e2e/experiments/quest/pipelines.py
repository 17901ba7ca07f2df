"""Six ways to tell somebody that a labour is complete, from naive to ours, on the same parts: the Labour aggregate, two real
databases, the bus, the text provider's client.

A design is what happens to a request (`complete`), what happens to a delivery (`handle`), and what runs beside (`processes`).
None of them knows about misfortune, as nobody does when they write such code: it comes with the parts (see `schedule`).
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import ClassVar
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from contracts.events import LabourCompleted
from contracts.registry import decode
from e2e.experiments.quest.designs import CALLBACK, NotAccepted
from labour.application.access import CommandContext
from labour.application.command_runner import CommandRunner
from labour.application.commands import complete_labour
from labour.domain.labour import Labour
from messaging import claims, trace
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

TIMEOUT, LEASE, QUARANTINE = 2.0, 3.0, 1.0  # seconds, of our design; short, so that doubts are settled soon

_WHO = text("SELECT phone FROM roster_member WHERE labour_id = :labour_id")

Process = Callable[[asyncio.Event], Awaitable[None]]  # runs until it is told to stop; if it crashes it is started again


@dataclass(frozen=True, slots=True)
class Parts:
    """What every design is built from."""

    labour: AsyncEngine
    notification: AsyncEngine
    bus: PubSub
    sms: Twilio

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
                traceparent=trace.current(),
            )
            await self.bus.publish(happened.event.type, [Outgoing(msgspec.json.encode(happened.event), context)])

    async def tell(self, message: Message) -> None:
        """One text to each person on the labour's list."""
        event = decode("labour.completed", 1, message.data)
        assert isinstance(event, LabourCompleted)
        async with self.notification.connect() as connection:
            phones = (await connection.execute(_WHO, {"labour_id": event.labour_id})).scalars().all()
        body = wording.write(event.type, mother_name=event.mother_name, notification_id=event_id(message))
        for phone in phones:
            if not isinstance(await self.sms.send(to=phone, body=body, status_callback=CALLBACK), Accepted):
                raise NotAccepted


def mother(labour_id: UUID) -> str:
    """Each labour has a mother of its own, who is known by it."""
    return str(labour_id)


def event_id(message: Message) -> UUID:
    return open_envelope(message.attributes, message.data).id


class DualWrite:
    """*Commit, then publish.* Believed: both calls nearly always work, and a failed request is simply tried again.

    Breaks: between the two. If the publish fails, or the process dies before it, the labour is complete and nobody will ever
    hear of it: trying again is refused, because the labour is complete. And each delivery of the bus is a text, however often
    the bus delivers.
    """

    name: ClassVar[str] = "dual write"
    timeout: ClassVar[float] = 30.0  # seconds of a call to the provider

    def __init__(self, parts: Parts) -> None:
        self.parts = parts

    async def complete(self, labour_id: UUID) -> None:
        async with AsyncSession(self.parts.labour, expire_on_commit=False) as session:
            labour = await session.get_one(Labour, labour_id)
            labour.complete(datetime.now(UTC))
            await session.commit()
        await self.parts.publish(labour.collect())

    async def handle(self, message: Message) -> Verdict:
        await self.parts.tell(message)
        return Verdict.ACK

    def processes(self) -> Sequence[Process]:
        return ()


class PublishThenCommit(DualWrite):
    """*Publish, then commit.* Believed: if publishing fails nothing has happened yet, so now nothing can be lost.

    Breaks: in the same place, the other way round. If the commit fails, people were told of something that never happened; and
    if it is tried again with success they are told once more, by a second event that nobody can recognise as the same.
    """

    name = "publish, then commit"

    async def complete(self, labour_id: UUID) -> None:
        async with AsyncSession(self.parts.labour, expire_on_commit=False) as session:
            labour = await session.get_one(Labour, labour_id)
            labour.complete(datetime.now(UTC))
            await self.parts.publish(labour.collect())
            await session.commit()


class NaiveConsumer(DualWrite):
    """*Outbox: change and event in one transaction, published later by a relay.* Believed: now it is solved.

    Half of it is: nothing is lost, nothing is told that did not happen. Breaks: the relay publishes again what it could not
    mark as published, the bus delivers again what was not acknowledged, and each delivery is a text.
    """

    name = "outbox, naive consumer"

    async def complete(self, labour_id: UUID) -> None:
        async with self.parts.labour_work() as uow:
            await complete_labour(CommandContext(uow, mother(labour_id)), labour_id)

    def processes(self) -> Sequence[Process]:
        # One event at a time, so that a crash of the relay hits the labour it was drawn for and no other.
        return (Relay(self.parts.labour, self.parts.bus, batch_size=1, poll_interval=0.05).run,)


class SendInTheClaim(NaiveConsumer):
    """*Claim the event, send the text, commit.* Believed: claim and effect are one transaction, so the effect happens once.

    True for effects in the database. Breaks: a text is not in the database. If the transaction is rolled back after the call,
    or the call's answer is lost, the claim is gone, the text is not, and the next delivery sends another.
    """

    name = "claims, send inside"

    async def handle(self, message: Message) -> Verdict:
        event = event_id(message)
        async with self.parts.notification_work() as uow:
            claim = (await claims.claim(uow.session, NAME, [event]))[event]
            if claim is Claim.GRANTED:
                await self.parts.tell(message)
                await claims.complete(uow.session, NAME, [event])
        return Verdict.NACK if claim is Claim.HELD_ELSEWHERE else Verdict.ACK


class RecordBeforeSend(NaiveConsumer):
    """*Claim the event, commit, then send.* Believed: rather not at all than twice, and it will hardly ever be not at all.

    Breaks: the record says that the text was sent, and only the text itself could prove it wrong. Whatever happens between the
    commit and the provider, a crash or a lost request, is never made good.
    """

    name = "record, then send"

    async def handle(self, message: Message) -> Verdict:
        event = event_id(message)
        async with self.parts.notification_work() as uow:
            claim = (await claims.claim(uow.session, NAME, [event]))[event]
            if claim is Claim.GRANTED:
                await claims.complete(uow.session, NAME, [event])
        if claim is Claim.GRANTED:
            await self.parts.tell(message)
        return Verdict.NACK if claim is Claim.HELD_ELSEWHERE else Verdict.ACK


class Ours(NaiveConsumer):
    """*Outbox; claim and a row of the ledger in one transaction; a dispatcher that records before it calls, and asks the provider
    when it does not know how a call ended.* The services' own code, unchanged; the client's retry finds its key.
    """

    name = "ours"
    timeout = TIMEOUT

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        work = parts.notification_work
        self.dispatcher = Dispatcher(
            work, parts.sms, callback_url=CALLBACK, lease_seconds=LEASE, call_within=(LEASE - TIMEOUT) / 2
        )
        self.reconciler = Reconciler(work, parts.sms, policies={}, quarantine=QUARANTINE, ask_interval=QUARANTINE / 10)
        self.consumer = create_consumer(work, parts.bus, wake_dispatcher=self.dispatcher.wake)

    async def complete(self, labour_id: UUID) -> None:
        caller = mother(labour_id)
        key = Key(caller, key="her tap", request=b"PUT complete")
        runner = CommandRunner(self.parts.labour_work, caller, key)
        await runner.run(lambda context: complete_labour(context, labour_id), lambda labour: Answer(200, {}, b""))

    async def handle(self, message: Message) -> Verdict:
        return (await self.consumer.handle([message]))[0]

    def processes(self) -> Sequence[Process]:
        return (*super().processes(), self.dispatcher.run, self.reconciler.run)


DESIGNS = (DualWrite, PublishThenCommit, NaiveConsumer, SendInTheClaim, RecordBeforeSend, Ours)
