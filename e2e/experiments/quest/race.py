"""Runs the designs, each in a world of its own with the same labours and the same misfortunes, until nothing is under way any
more; then looks at the phones.
"""

import asyncio
import os
import tempfile
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from unittest.mock import patch
from uuid import UUID

from sqlalchemy import TextClause, text
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

import sms_sandbox
from e2e.experiments.quest.designs import NotAccepted
from e2e.experiments.quest.misfortune import Crash, Wire
from e2e.experiments.quest.pipelines import DualWrite, Parts, Process, mother
from e2e.experiments.quest.schedule import (
    Bus,
    BusFaults,
    Case,
    RolledBack,
    Schedule,
    SmsFaults,
    fail_commits,
    labour_of,
    requested,
)
from e2e.experiments.quest.sms import ignore_crashes
from e2e.support.databases import fresh_database
from fern.errors import FernError
from fern.runtime.postgres import SERVICES, TemporaryServer
from labour.domain.errors import LabourAlreadyCompleted
from labour.domain.labour import Labour
from messaging.bus import Message
from messaging.consumer import Verdict
from messaging.database import create_engine
from messaging.errors import BusUnavailable
from pubsub_emulator import server as pubsub
from pubsub_emulator import wire
from pubsub_emulator.policy import complete_subscription

WORLDS = 2  # at once: one works while the other waits
AT_ONCE = 6  # requests, and deliveries, in each world
TRIES = 10  # of a client: more than there are misfortunes that can keep it from an answer
ACK_DEADLINE = 1  # seconds until what nobody acknowledged is delivered again
QUIET_WITHIN = 300.0  # seconds
LONG = 3600.0  # seconds between two steps of a text at the provider: here it need not arrive, only exist

PROJECT, TOPIC = "quest", "labour.completed"

_ROSTER = text("INSERT INTO roster (labour_id, version) VALUES (:labour_id, 1)")
_MEMBER = text("""
    INSERT INTO roster_member (labour_id, person_id, name, phone, added_version)
    VALUES (:labour_id, :person_id, 'Grace', :phone, 1)
""")
_UNPUBLISHED = text("SELECT CAST(ordering_key AS uuid) FROM outbox WHERE published_at IS NULL")
_UNSETTLED = text("SELECT labour_id FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')")
_COMPLETE = text("SELECT id FROM labour WHERE phase = 'complete'")

Design = DualWrite  # which the others are made from


class Fate(StrEnum):
    """Of a labour: was it completed, and how many texts did its person get?"""

    ONCE = "once"
    LOST = "lost"  # it was, and nobody was told
    DUPLICATED = "duplicated"
    PHANTOM = "phantom"  # it was not, and somebody was told
    NONE = "none"  # it was not, and nobody was told

    @classmethod
    def of(cls, completed: bool, texts: int) -> "Fate":
        if not completed:
            return cls.PHANTOM if texts else cls.NONE
        return (cls.LOST, cls.ONCE)[texts] if texts < 2 else cls.DUPLICATED


async def race(
    server: TemporaryServer,
    misfortunes: Sequence[frozenset[str]],
    designs: Sequence[type[Design]],
    progress: Callable[[str, int], None] = lambda name, settled: None,
) -> dict[str, list[Fate]]:
    """For each design, by name, the fate of each labour, in the order of the misfortunes that were to hit them.

    The server must have the services' migrated databases, to be copied.
    """
    asyncio.get_running_loop().set_exception_handler(ignore_crashes)
    databases = asyncio.Queue[list[str]]()  # left as they are for the next design, whose labours are others
    for _ in range(min(WORLDS, len(designs))):
        databases.put_nowait([await fresh_database(server, service) for service in SERVICES])

    async def run(design: type[Design]) -> list[Fate]:
        urls = await databases.get()
        async with new_world(urls, misfortunes, design.timeout) as world:
            await play(design(world.parts), world, lambda settled: progress(design.name, settled))
            fates = await world.fates()
        databases.put_nowait(urls)
        return fates

    runs = [asyncio.create_task(run(design)) for design in designs]
    try:
        return dict(zip((design.name for design in designs), await asyncio.gather(*runs), strict=True))
    finally:
        for one in runs:
            one.cancel()
        await asyncio.gather(*runs, return_exceptions=True)


async def play(design: Design, world: "World", progress: Callable[[int], None]) -> None:
    """From the first request until nothing is under way any more."""
    stop, turns = asyncio.Event(), asyncio.Semaphore(AT_ONCE)
    clients = {case.labour_id: asyncio.create_task(client(design, world, case, turns)) for case in world.cases}
    consumers = [asyncio.create_task(consume(design, subscription(case.labour_id), turns)) for case in world.cases]
    processes = [asyncio.create_task(keep_running(process, stop)) for process in design.processes()]
    deadline = time.monotonic() + QUIET_WITHIN
    try:
        while under_way := await world.under_way(clients):
            progress(len(world.cases) - len(under_way))
            if time.monotonic() > deadline:
                raise FernError(f"{design.name}: {len(under_way)} labours are under way after {QUIET_WITHIN:g} s.")
            for task in (*clients.values(), *consumers, *processes):
                if task.done():
                    task.result()  # none of them fails, unless by a mistake of ours
            await asyncio.sleep(0.2)
        progress(len(world.cases))
    finally:
        stop.set()
        for task in (*clients.values(), *consumers):
            task.cancel()
        await asyncio.gather(*clients.values(), *consumers, *processes, return_exceptions=True)


async def client(design: Design, world: "World", case: Case, turns: asyncio.Semaphore) -> None:
    """Taps "complete", and again when there is no answer, or one that says to try again."""
    requested.set(case.labour_id)
    for _ in range(TRIES):
        try:
            async with turns:
                await design.complete(case.labour_id)
        except Crash:
            continue
        except BusUnavailable:
            if "refuse-publish" not in case.misfortunes:
                raise  # a bus that is really away would spoil the count
            continue
        except (RolledBack, LabourAlreadyCompleted):
            return
        if not world.schedule.strikes("answer-lost", case.labour_id):
            return


async def consume(design: Design, name: str, turns: asyncio.Semaphore) -> None:
    """What is delivered together is handled at the same time, as by several consumers. However slow we are, a message does not
    come again because of that: the bus takes a late acknowledgement, and we ask for more only after it.
    """
    bus = design.parts.bus

    async def deliver(message: Message) -> None:
        with suppress(Crash):  # then nobody is left to say anything, and the message comes again
            try:
                async with turns:
                    verdict = await design.handle(message)
            except NotAccepted:
                verdict = Verdict.NACK
            if verdict is Verdict.ACK:
                await bus.acknowledge(name, [message.ack_id])
            else:
                await bus.modify_deadline(name, [message.ack_id], 0)

    while True:
        if messages := await bus.pull(name, 10, wait=30.0):
            await bus.modify_deadline(name, [message.ack_id for message in messages], ACK_DEADLINE)
            await asyncio.gather(*map(deliver, messages))


async def keep_running(process: Process, stop: asyncio.Event) -> None:
    while not stop.is_set():
        with suppress(Crash):
            await process(stop)


@dataclass(frozen=True, slots=True)
class World:
    parts: Parts
    cases: Sequence[Case]
    schedule: Schedule
    bus: pubsub.Running
    sms: sms_sandbox.Address

    async def under_way(self, clients: dict[UUID, asyncio.Task[None]]) -> Collection[UUID]:
        """Looks along the way that an event goes: what has left a place before we looked there is found at a later one."""
        unanswered = {labour_id for labour_id, task in clients.items() if not task.done()}
        unpublished = await ids(self.parts.labour, _UNPUBLISHED)
        unacked = {labour_of(name) for name, one in self.bus.broker.catalog.subscriptions.items() if one.unacked}
        unsettled = await ids(self.parts.notification, _UNSETTLED)
        return unanswered | unpublished | unacked | unsettled

    async def fates(self) -> list[Fate]:
        completed = await ids(self.parts.labour, _COMPLETE)
        texts = Counter(one.recipient for one in self.sms.sandbox.store.newest(None, 100_000))
        return [Fate.of(case.labour_id in completed, texts[case.phone]) for case in self.cases]


async def ids(engine: AsyncEngine, query: TextClause) -> set[UUID]:
    async with engine.connect() as connection:
        return set((await connection.execute(query)).scalars())


@asynccontextmanager
async def new_world(urls: Sequence[str], misfortunes: Sequence[frozenset[str]], timeout: float) -> AsyncIterator[World]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fern-quest-")))
        provider = await stack.enter_async_context(sms_sandbox.running(folder / "sms", pace=LONG))
        bus = await stack.enter_async_context(pubsub.running(folder / "bus"))
        # A delivery may need two connections, and so does whoever looks for what is under way.
        labour, notification = (create_engine(url, process="quest", pool_size=2 * AT_ONCE + 4) for url in urls)
        cases = await plan_labours(labour, notification, misfortunes)
        await create_topics(bus, cases)

        schedule = Schedule(cases)
        fail_commits(labour, schedule)
        bus.broker.faults = BusFaults(schedule)
        provider.sandbox.faults = SmsFaults(provider.sandbox, schedule)
        with patch.dict(os.environ, {"PUBSUB_EMULATOR_HOST": bus.target}):
            parts = Parts(labour, notification, Bus(PROJECT, schedule), Wire(provider.url, schedule.may_crash, timeout))
        for close in (labour.dispose, notification.dispose, parts.bus.close, parts.sms.close):
            stack.push_async_callback(close)
        await parts.bus.ping(f"{TOPIC}.{cases[0].labour_id}")
        yield World(parts, cases, schedule, bus, provider)


async def plan_labours(
    labour_engine: AsyncEngine, notification_engine: AsyncEngine, misfortunes: Sequence[frozenset[str]]
) -> list[Case]:
    """In calm weather: labours in one database, each with somebody to tell in the other."""
    now, labours, members = datetime.now(UTC), list[Labour](), list[dict[str, object]]()
    cases = list[Case]()
    for number, names in enumerate(misfortunes):
        labour = Labour(mother_id="", mother_name="Ada", at=now)
        labour.mother_id = mother(labour.id)
        grace = labour.subscribe(name="Grace", phone=f"+447700900{number:03}", at=now)
        labours.append(labour)
        members.append({"labour_id": labour.id, "person_id": grace.id, "phone": grace.phone})
        cases.append(Case(labour.id, grace.phone, names))
    async with AsyncSession(labour_engine) as session, session.begin():
        session.add_all(labours)
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
