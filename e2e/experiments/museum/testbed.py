"""Where a scenario runs: a real PostgreSQL, a real bus, and everything that a scenario needs besides the part under test."""

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib import import_module
from itertools import pairwise
from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts import registry
from contracts.events import Event, LabourCompleted, SubscriberAdded
from e2e.support import sample_events
from e2e.support.crash import SimulatedCrash
from e2e.support.databases import as_owner
from e2e.support.sample_events import Happened
from messaging import claims
from messaging.bus import Message
from messaging.consumer import Consumer, React, Received, Verdict, decoder
from messaging.database import create_engine
from messaging.envelope import Envelope
from messaging.faults import FaultPoint
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork
from notification.application.batch_reaction import react_to_batch
from notification.domain.reactions import TOPICS
from pubsub_emulator.broker import Broker
from servicekit.logs import configure

NAME = "tests"
SUBSCRIPTION = f"{NAME}.{Happened.type}"
PHONE = "+12025550123"

MakeConsumer = Callable[..., Consumer[Happened]]

our_reaction: React[Event] = partial(react_to_batch, wake_dispatcher=lambda: None)


@dataclass(frozen=True, slots=True)
class Testbed:
    """Two services with a database each, a bus between them, and a table with a row for every effect."""

    labour: AsyncEngine
    notification: AsyncEngine
    labour_url: str
    notification_url: str
    bus: PubSub
    broker: Broker

    def in_labour(self) -> UnitOfWork:
        return UnitOfWork(self.labour, source="labour", committed=lambda: None)

    def in_notification(self) -> UnitOfWork:
        return UnitOfWork(self.notification, source="notification", committed=lambda: None)

    async def clear(self) -> None:
        """Delete all rows, so that the scenario can run again."""
        await as_owner(self.labour_url, "TRUNCATE outbox, labour, labour_update, told, idempotency_key CASCADE")
        tables = "processed_event, notification, consent, roster, roster_member, outbox"
        await as_owner(self.notification_url, f"TRUNCATE {tables}")
        async with self.notification.begin() as notification:
            await notification.execute(text("DELETE FROM effect"))

    async def emit(self, *numbers: int, labour: str = "ada") -> None:
        await sample_events.emit(self.in_labour, *(Happened(labour, number) for number in numbers))

    async def emit_a_birth(self) -> tuple[SubscriberAdded, LabourCompleted]:
        """Grace subscribes to a labour, and the baby is born."""
        about: dict[str, Any] = {"labour_id": uuid7(), "roster_version": 1}
        grace = SubscriberAdded(**about, person_id=uuid7(), name="Grace", phone=PHONE)
        born = LabourCompleted(**about, mother_name="Ada", completed_at=datetime.now(UTC))
        async with self.in_labour() as uow:
            for event in (grace, born):
                uow.emit(event, key=str(event.labour_id), at=datetime.now(UTC))
        return grace, born

    async def publish_all(self, by: Relay | None = None) -> None:
        by = by or Relay(self.labour, self.bus)
        while (await by.run_once()).published:
            pass

    async def replay(self) -> None:
        async with self.labour.begin() as connection:
            await connection.execute(text("UPDATE outbox SET published_at = NULL"))
        await self.publish_all()

    def consumer(self, make: MakeConsumer = Consumer) -> Consumer[Happened]:
        return make_consumer(make, self.notification, self.bus)

    def notification_consumer(self, react: React[Event]) -> Consumer[Event]:
        """A consumer of the Notification service, with this reaction."""
        decode_event, units = decoder(TOPICS, registry.decode, {}), self.in_notification
        return Consumer("notification", units_of_work=units, decode=decode_event, react=react, publisher=self.bus)

    async def pull(self, count: int) -> list[Message]:
        found = list[Message]()
        while len(found) < count:
            found += await self.bus.pull(SUBSCRIPTION, count - len(found), wait=5.0)
        return found

    async def deliver(self, messages: Sequence[Message], to: Consumer[Any]) -> None:
        try:
            verdicts = await to.handle(messages)
        except SimulatedCrash:
            for message in messages:
                await self.end_lease(message)
            raise
        await self.answer(messages, verdicts)

    async def answer(self, messages: Sequence[Message], verdicts: Sequence[Verdict]) -> None:
        for message, verdict in zip(messages, verdicts, strict=True):
            if verdict is Verdict.ACK:
                await self.bus.acknowledge(message.subscription, [message.ack_id])
            else:
                await self.end_lease(message)

    async def end_lease(self, message: Message) -> None:
        """End the lease at once, as if it had run out: the bus delivers the message again."""
        await self.bus.modify_deadline(message.subscription, [message.ack_id], 0)

    async def deliver_all(self, to: Consumer[Any], subscriptions: Collection[str] = (SUBSCRIPTION,)) -> None:
        """Deliver until every message of the subscriptions is acknowledged."""
        while unacked := [name for name in subscriptions if self._unacked(name)]:
            for subscription in unacked:
                await self.deliver(await self.bus.pull(subscription, 100, wait=1.0), to)

    def _unacked(self, subscription: str) -> int:
        return self.broker.catalog.subscriptions[self.bus.subscription_path(subscription)].unacked

    async def check_effects(self, *numbers: int) -> list[str]:
        """Every event must have its effect exactly once."""
        async with self.notification.connect() as connection:
            seen = Counter((await connection.execute(text("SELECT number FROM effect"))).scalars())
        lost = [f"lost: event {number} was acknowledged and had no effect" for number in numbers if not seen[number]]
        twice = [number for number in numbers if seen[number] > 1]
        return lost + [f"duplicated: event {number} had its effect {seen[number]} times" for number in twice]

    async def check_bus(self, *numbers: int) -> list[str]:
        """Every event must be on the bus at least once, and those of a labour in order."""
        messages = list[Message]()
        while self._unacked(SUBSCRIPTION):
            messages += (batch := await self.bus.pull(SUBSCRIPTION, 100, wait=1.0))
            await self.answer(batch, [Verdict.ACK] * len(batch))
        labours = defaultdict[str, dict[int, None]](dict)  # only the first copy counts
        for message in sorted(messages, key=lambda message: int(message.message_id)):
            event = msgspec.json.decode(message.data, type=Happened)
            labours[event.key].setdefault(event.number)
        missing = set(numbers).difference(*labours.values())
        lost = [f"lost: event {number} was committed and never reached the bus" for number in sorted(missing)]
        pairs = [pair for labour in labours.values() for pair in pairwise(labour)]
        late = [f"out-of-order: event {b} reached the bus after event {a}" for a, b in pairs if a > b]
        return lost + late


def make_consumer(make: MakeConsumer, engine: AsyncEngine, bus: PubSub) -> Consumer[Happened]:
    def unit_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=lambda: None)

    return make(NAME, units_of_work=unit_of_work, decode=decode, react=write, publisher=bus)


def decode(envelope: Envelope) -> Happened:
    return msgspec.json.decode(envelope.data, type=Happened)


async def write(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
    """The effect of an event: a row with its number, and no key that would prevent a second one."""
    numbers = [received.event.number for received in events]
    await uow.connection.execute("INSERT INTO effect SELECT unnest($1::integer[])", numbers)
    return ()


class Hold:
    """Holds the first visitor of a fault point until it is released or cancelled. Later visitors pass."""

    def __init__(self) -> None:
        self.reached, self.released = asyncio.Event(), asyncio.Event()

    async def __call__(self) -> None:
        if not self.reached.is_set():
            self.reached.set()
            await self.released.wait()


@contextmanager
def armed(point: FaultPoint, action: Callable[[], Any]) -> Iterator[None]:
    point.arm(action)
    try:
        yield
    finally:
        point.disarm()


def run_consumer() -> None:
    """The program of a consumer process: reads a batch from stdin, handles it, and prints the verdicts."""
    url, lock_key, name = sys.argv[1:]
    module, _, function = lock_key.partition(":")
    configure(name, "CRITICAL")  # stdout is reserved for the verdicts

    async def consume() -> None:
        consumer = make_consumer(Consumer, create_engine(url, process=name), PubSub("nowhere"))
        verdicts = await consumer.handle(msgspec.json.decode(sys.stdin.readline(), type=list[Message]))
        sys.stdout.write(" ".join(verdict.value for verdict in verdicts) + "\n")

    with patch.object(claims, "lock_key", getattr(import_module(module), function)):
        asyncio.run(consume())
