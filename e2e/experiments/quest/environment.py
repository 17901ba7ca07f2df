"""Where a design runs: two databases, a bus and a provider of its own, with labours, and with faults scheduled for them."""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine

import sms_sandbox
from e2e.experiments.quest.designs import Parts, mother_id
from e2e.experiments.quest.faults import (
    BusFaults,
    Case,
    FaultyBus,
    FaultyDispatcher,
    FaultyTwilio,
    Schedule,
    SmsFaults,
    labour_of,
    strike_before_commit,
)
from labour.domain.labour import Labour
from labour.storage import Labours
from messaging.database import create_engine
from messaging.unit_of_work import BEFORE_COMMIT, UnitOfWork
from pubsub_emulator import server as pubsub
from pubsub_emulator import wire
from pubsub_emulator.policy import complete_subscription

AT_ONCE = 6  # requests, and deliveries
MOST_LABOURS = 900  # there are only so many phone numbers that are reserved for fiction
NEVER = 3600.0  # seconds between two steps of a text at the provider: it must exist, and need not be delivered

PROJECT, TOPIC = "quest", "labour.completed"

_ROSTER = text("INSERT INTO roster (labour_id, version) VALUES (:labour_id, 1)")
_MEMBER = text("""
    INSERT INTO roster_member (labour_id, person_id, name, phone, added_version)
    VALUES (:labour_id, :person_id, 'Grace', :phone, 1)
""")
_UNPUBLISHED = text("SELECT CAST(ordering_key AS uuid) FROM outbox WHERE published_at IS NULL")
_UNSETTLED = text("SELECT labour_id FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')")
_COMPLETE = text("SELECT id FROM labour WHERE phase = 'complete'")

FaultNames = frozenset[str]  # that will strike one labour


class LabourOutcome(StrEnum):
    """Whether a labour was completed, and how many texts its person got."""

    ONCE = "once"
    LOST = "lost"  # completed, and no text
    DUPLICATED = "duplicated"
    PHANTOM = "phantom"  # not completed, and a text
    NONE = "none"  # not completed, and no text

    @classmethod
    def of(cls, completed: bool, texts: int) -> "LabourOutcome":
        if not completed:
            return cls.PHANTOM if texts else cls.NONE
        return (cls.LOST, cls.ONCE)[texts] if texts < 2 else cls.DUPLICATED


@dataclass(frozen=True, slots=True)
class Environment:
    parts: Parts
    cases: Sequence[Case]
    schedule: Schedule
    bus: pubsub.Running
    sms: sms_sandbox.Address

    async def unfinished(self, clients: dict[UUID, asyncio.Task[None]]) -> Collection[UUID | str]:
        """What is still being processed. Queries follow the path of an event, so one that moves on is found at a later place."""
        unanswered = {labour_id for labour_id, task in clients.items() if not task.done()}
        unpublished = await ids(self.parts.labour, _UNPUBLISHED)
        unacked = {labour_of(name) for name, one in self.bus.broker.catalog.subscriptions.items() if one.unacked}
        unsettled = await ids(self.parts.notification, _UNSETTLED)
        not_created = {text.recipient for text in self.sms.sandbox.store.due(time.time() + NEVER / 2, 1)}
        return {*unanswered, *unpublished, *unacked, *unsettled, *self.schedule.frozen, *not_created}

    async def outcomes(self) -> list[LabourOutcome]:
        completed = await ids(self.parts.labour, _COMPLETE)
        texts = Counter(one.recipient for one in self.sms.sandbox.store.newest(None, 100_000))
        return [LabourOutcome.of(case.labour_id in completed, texts[case.phone]) for case in self.cases]


async def ids(engine: AsyncEngine, query: TextClause) -> set[UUID]:
    async with engine.connect() as connection:
        return set((await connection.execute(query)).scalars())


@asynccontextmanager
async def new_environment(
    urls: dict[str, str], faults: Sequence[FaultNames], timeout: float
) -> AsyncIterator[Environment]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fern-quest-")))
        provider = await stack.enter_async_context(sms_sandbox.running(folder / "sms", pace=NEVER))
        bus = await stack.enter_async_context(pubsub.running(folder / "bus"))
        # A delivery may need two connections, and so does `unfinished`.
        connections = 2 * AT_ONCE + 4
        labour, notification = (
            create_engine(url, process="quest", pool_size=connections, connect_timeout=60) for url in urls.values()
        )
        cases = await plan_labours(labour, notification, faults)
        await create_topics(bus, cases)

        schedule = Schedule(cases)
        BEFORE_COMMIT.arm(strike_before_commit)
        bus.broker.faults = BusFaults(schedule)
        provider.sandbox.faults = SmsFaults(provider.sandbox, schedule)
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": bus.target}):
            faulty_bus = FaultyBus(PROJECT, schedule)
        twilio = FaultyTwilio(provider.url, schedule, timeout)
        for close in (labour.dispose, notification.dispose, faulty_bus.close, twilio.close):
            stack.push_async_callback(close)
        await faulty_bus.ping(f"{TOPIC}.{cases[0].labour_id}")
        parts = Parts(labour, notification, faulty_bus, twilio, partial(FaultyDispatcher, schedule))
        yield Environment(parts, cases, schedule, bus, provider)


async def plan_labours(
    labour_engine: AsyncEngine, notification_engine: AsyncEngine, faults: Sequence[FaultNames]
) -> list[Case]:
    """Create the labours in one database and their people in the other, before any fault is active."""
    now, labours, members = datetime.now(UTC), list[Labour](), list[dict[str, object]]()
    cases = list[Case]()
    for number, names in enumerate(faults):
        labour = Labour(mother_id="", mother_name="Ada", at=now)
        labour.mother_id = mother_id(labour.id)
        grace = labour.subscribe(name="Grace", phone=f"+447700900{number:03}", at=now)
        labours.append(labour)
        members.append({"labour_id": labour.id, "person_id": grace.id, "phone": grace.phone})
        cases.append(Case(labour.id, grace.phone, names))
    async with UnitOfWork(labour_engine, source="labour", committed=lambda: None) as uow:
        for labour in labours:
            labour.collect()  # no event about their planning
            await Labours(uow).add(labour)
    async with notification_engine.begin() as connection:
        await connection.execute(_ROSTER, members)
        await connection.execute(_MEMBER, members)
    return cases


async def create_topics(bus: pubsub.Running, cases: Collection[Case]) -> None:
    for case in cases:
        topic = f"projects/{PROJECT}/topics/{TOPIC}.{case.labour_id}"
        await bus.broker.catalog.create_topic(wire.Topic(name=topic))
        wanted = wire.Subscription(name=f"projects/{PROJECT}/subscriptions/{subscription(case.labour_id)}", topic=topic)
        complete_subscription(wanted)
        await bus.broker.catalog.create_subscription(wanted)


def subscription(labour_id: UUID) -> str:
    return f"notification.{TOPIC}.{labour_id}"
