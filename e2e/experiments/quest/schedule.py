"""What goes wrong, and for which labour: drawn from the seed before anything runs, so that every design meets the same.

Every misfortune strikes a labour at most once, in a part that all designs are built from: at the commit of the labour's database,
in the client of the bus or of the provider, in the bus, or in the provider. Where a crash is simulated, everything after it in
that process, for that labour, does not happen; then the process is there again.
"""

import random
from collections.abc import Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import event
from sqlalchemy.engine import Connection
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.experiments.quest.misfortune import Crash
from messaging.bus import Outgoing
from messaging.pubsub import PubSub
from pubsub_emulator import faults as bus_faults
from sms_sandbox import faults as sms_faults
from sms_sandbox.sandbox import Sandbox

# In the order of an event's journey
MISFORTUNES = {
    "crash-before-commit": "the API dies when the change is written and not committed",
    "rollback": "the database refuses the change for good; the client is told so and gives up",
    "crash-before-publish": "whoever publishes dies before its call to the bus",
    "refuse-publish": "the bus answers a publish with UNAVAILABLE",
    "crash-after-publish": "whoever publishes dies after its call to the bus",
    "answer-lost": "the client gets no answer to a request that has succeeded, and asks again",
    "duplicate": "the bus delivers a message twice, to two at the same time",
    "crash-before-call": "whoever sends the text dies before its call to the provider",
    "request-lost": "the call to the provider ends without an answer, and nothing is created",
    "reply-lost": "the call to the provider ends without an answer, and the text is created",
    "created-500": "the provider answers 500, and the text is created",
    "crash-after-call": "whoever sends the text dies after its call to the provider",
    "crash-before-ack": "whoever handles the message dies before it acknowledges",
    "forget-acks": "the bus answers an acknowledgement and forgets it",
}
RATE = 0.1  # of the labours are hit by each, unless a rate says otherwise


def draw(seed: int, number: int, rates: Mapping[str, float]) -> frozenset[str]:
    """What hits the labour with this number. A higher rate hits the same labours, and more."""
    return frozenset(
        name for name in MISFORTUNES if random.Random(f"{seed}/{name}/{number}").random() < rates.get(name, RATE)
    )


@dataclass(frozen=True, slots=True)
class Case:
    """One labour, the phone of the one person who is to be told, and what will go wrong on the way."""

    labour_id: UUID
    phone: str
    misfortunes: frozenset[str]


class RolledBack(Exception):
    """The database has refused the transaction."""


class Schedule:
    """What is left of the misfortunes: each is used up when it strikes. `whom` is a labour, or the phone that goes with it."""

    def __init__(self, cases: Collection[Case]) -> None:
        self._left = dict[UUID | str, set[str]]()
        for case in cases:
            self._left[case.labour_id] = self._left[case.phone] = set(case.misfortunes)

    def strikes(self, name: str, whom: UUID | str) -> bool:
        strikes = name in self._left[whom]
        self._left[whom].discard(name)
        return strikes

    def may_crash(self, place: str, whom: UUID | str) -> None:
        if self.strikes(f"crash-{place}", whom):
            raise Crash


requested: ContextVar[UUID] = ContextVar("requested")  # the labour that the current request is about


def fail_commits(engine: AsyncEngine, schedule: Schedule) -> None:
    """The commits of requests, that is; the relay works on the same database, and its mishaps are those of publishing."""

    @event.listens_for(engine.sync_engine, "commit")
    def before_commit(connection: Connection) -> None:
        labour_id = requested.get(None)
        if labour_id is None:
            return
        if schedule.strikes("crash-before-commit", labour_id):
            error: type[BaseException] = Crash
        elif schedule.strikes("rollback", labour_id):
            error = RolledBack
        else:
            return
        connection.dialect.do_rollback(connection.connection)  # or the pool would hand out an open transaction
        raise error


class Bus(PubSub):
    """The real client, with places to crash. Each labour has a topic and a subscription of its own, so that the bus can be unkind
    to one and not to another.
    """

    def __init__(self, project: str, schedule: Schedule) -> None:
        super().__init__(project, timeout=120.0)  # a slow machine is not a misfortune
        self._schedule = schedule

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        message_ids = list[str]()
        for message in messages:
            labour_id = UUID(message.attributes["ce-subject"])
            self._schedule.may_crash("before-publish", labour_id)
            message_ids += await super().publish(f"{topic}.{labour_id}", [message])
            self._schedule.may_crash("after-publish", labour_id)
        return message_ids

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        self._schedule.may_crash("before-ack", labour_of(subscription))
        await super().acknowledge(subscription, ack_ids)


def labour_of(name: str) -> UUID:
    """Of a topic or subscription."""
    return UUID(name.rpartition(".")[2])


class BusFaults(bus_faults.Faults):
    """Instead of the emulator's own dice. What a fault does stays the emulator's business."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__({})
        self.active = True
        self._schedule = schedule

    def strikes(self, name: str, topic: str) -> bool:
        return self._schedule.strikes(name, labour_of(topic))


class SmsFaults(sms_faults.Faults):
    """The same for the sandbox."""

    def __init__(self, sandbox: Sandbox, schedule: Schedule) -> None:
        super().__init__(sandbox.store, changed=lambda: None)
        self._schedule = schedule

    def strikes(self, name: str, phone: str) -> sms_faults.Fault | None:
        if not self._schedule.strikes(name, phone):
            return None
        return sms_faults.Fault(name, rate=1.0, seed=0, times=None, parameters={})
