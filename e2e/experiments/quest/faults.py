"""What goes wrong, and for which labour: drawn from the seed before anything runs, so that every design meets the same faults.

Every fault strikes a labour at most once, in a part that all designs are built from: at a commit, in the client of the bus or of
the provider, in the bus, or in the provider. After a simulated crash nothing else happens in that process for that labour; then
the process starts again.
"""

import asyncio
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from typing import Any
from uuid import UUID

from e2e.experiments.quest.designs import LEASE, QUARANTINE
from e2e.support.crash import SimulatedCrash
from messaging.bus import Outgoing
from messaging.pubsub import PubSub
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.twilio import SendOutcome, Twilio
from notification.domain.notification import Lease
from pubsub_emulator import faults as bus_faults
from sms_sandbox import faults as sms_faults
from sms_sandbox.sandbox import Sandbox

# The faults of `fern quest`, in the order of an event's path
FAULTS = {
    "crash-before-commit": "the API dies when the change is written and not committed",
    "rollback": "the database refuses the change for good; the client gets an error and gives up",
    "crash-before-publish": "the publishing process dies before its call to the bus",
    "refuse-publish": "the bus answers a publish with UNAVAILABLE",
    "crash-after-publish": "the publishing process dies after its call to the bus",
    "answer-lost": "the client gets no answer to a request that succeeded, and repeats it",
    "duplicate": "the bus delivers a message twice, to two consumers at the same time",
    "crash-before-call": "the sending process dies before its call to the provider",
    "request-lost": "the call to the provider ends without an answer, and no text is created",
    "reply-lost": "the call to the provider ends without an answer, and the text is created",
    "created-500": "the provider answers 500, and the text is created",
    "crash-after-call": "the sending process dies after its call to the provider",
    "crash-before-ack": "the consumer dies before it acknowledges the message",
    "forget-acks": "the bus answers an acknowledgement and forgets it",
}
RATE = 0.1  # the share of labours that each fault hits, unless a rate is given

# More faults of `fern quest sms`: `crash-before-record` (the process dies when the outcome of the call is written and not
# committed), the two below, and faults in which the provider hides a text for some seconds.
FREEZES = ("freeze-before-check", "freeze-after-check")  # of the sending process: before or after it checks the clock
FREEZE_SECONDS = LEASE + QUARANTINE + 2.0
WITHIN_QUARANTINE, BEYOND_QUARANTINE = QUARANTINE / 5, QUARANTINE * 6  # seconds
HIDDEN = {  # by the sandbox's name of the fault
    "created-late": {"created-late": WITHIN_QUARANTINE, "created-too-late": BEYOND_QUARANTINE},
    "list-lag": {"listed-late": WITHIN_QUARANTINE, "listed-too-late": BEYOND_QUARANTINE},
}


def draw(seed: int, number: int, rates: Mapping[str, float]) -> frozenset[str]:
    """The faults that hit the labour with this number. A higher rate hits the same labours, and more."""
    return frozenset(
        name for name in FAULTS if random.Random(f"{seed}/{name}/{number}").random() < rates.get(name, RATE)
    )


@dataclass(frozen=True, slots=True)
class Case:
    """One labour, the phone of the one person who must be told, and the faults that will strike."""

    labour_id: UUID
    phone: str
    faults: frozenset[str]


class RolledBack(Exception):
    """The database has refused the transaction."""


class Schedule:
    """The faults that have not struck yet. `whom` is a labour, or the phone of its person."""

    def __init__(self, cases: Collection[Case]) -> None:
        self._left = dict[UUID | str, set[str]]()
        self.frozen = set[UUID | str]()
        for case in cases:
            self._left[case.labour_id] = self._left[case.phone] = set(case.faults)

    def strikes(self, name: str, whom: UUID | str) -> bool:
        strikes = name in self._left[whom]
        self._left[whom].discard(name)
        return strikes

    def may_crash(self, place: str, whom: UUID | str) -> None:
        if self.strikes(f"crash-{place}", whom):
            raise SimulatedCrash

    def may_fail_request(self, labour_id: UUID) -> None:
        self.may_crash("before-commit", labour_id)
        if self.strikes("rollback", labour_id):
            raise RolledBack

    async def may_freeze(self, name: str, whom: UUID | str) -> None:
        if self.strikes(name, whom):
            self.frozen.add(whom)
            await asyncio.sleep(FREEZE_SECONDS)
            self.frozen.discard(whom)


# What may fail the commit of the current task: a request, or a process that has sent a text. Other tasks have none.
commit_fault: ContextVar[Callable[[], None] | None] = ContextVar("commit_fault", default=None)


async def strike_before_commit() -> None:
    if fault := commit_fault.get():
        fault()


class FaultyBus(PubSub):
    """The real client, with places to crash. Each labour has its own topic and subscription, so that a fault hits it alone."""

    def __init__(self, project: str, schedule: Schedule) -> None:
        super().__init__(project, timeout=120.0)  # seconds; long, because a slow machine is not a fault
        self._schedule = schedule

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        message_ids = list[str]()
        for message in messages:
            labour_id = UUID(message.attributes["ce-subject"])
            self._schedule.may_crash("before-publish", labour_id)
            message_ids += await super().publish(f"{topic}.{labour_id}", [message])
            self._schedule.may_crash("after-publish", labour_id)
        return message_ids

    async def _unary(self, method: Any, request: Any, timeout: float) -> Any:
        """Call without the client's retries, which would hide a fault that strikes once."""
        return await method(request, timeout=timeout)

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        self._schedule.may_crash("before-ack", labour_of(subscription))
        await super().acknowledge(subscription, ack_ids)


def labour_of(name: str) -> UUID:
    """The labour of a topic or subscription."""
    return UUID(name.rpartition(".")[2])


class FaultyTwilio(Twilio):
    """The real client, with places to freeze and to crash."""

    def __init__(self, url: str, schedule: Schedule, timeout: float) -> None:
        account = {"account_sid": "AC" + "0" * 32, "auth_token": "quest", "sender": "+15005550006"}
        super().__init__(**account, base_url=url, timeout=timeout)
        self._schedule = schedule

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        commit_fault.set(partial(self._schedule.may_crash, "before-record", to))
        for name in FREEZES:  # a design without a dispatcher checks no clock, so that both come here
            await self._schedule.may_freeze(name, to)
        self._schedule.may_crash("before-call", to)
        outcome = await super().send(to=to, body=body, status_callback=status_callback)
        self._schedule.may_crash("after-call", to)
        return outcome


class FaultyDispatcher(Dispatcher):
    """The real dispatcher, with a place to freeze before it checks the clock, and one to crash before it records an outcome."""

    def __init__(self, schedule: Schedule, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._schedule = schedule

    async def send(self, lease: Lease) -> None:
        await self._schedule.may_freeze("freeze-before-check", lease.phone)
        await super().send(lease)

    async def _record(self, lease: Lease, outcome: SendOutcome) -> None:
        """Crash here, and not at the commit, which is one for the outcomes of several texts."""
        self._schedule.may_crash("before-record", lease.phone)
        commit_fault.set(None)
        await super()._record(lease, outcome)


class BusFaults(bus_faults.Faults):
    """Decides with the schedule instead of the emulator's random numbers. What a fault does is the emulator's code."""

    def __init__(self, schedule: Schedule) -> None:
        super().__init__({})
        self.active = True
        self._schedule = schedule

    def strikes(self, name: str, topic: str) -> bool:
        return self._schedule.strikes(name, labour_of(topic))


class SmsFaults(sms_faults.Faults):
    """Decides with the schedule instead of the sandbox's random numbers. What a fault does is the sandbox's code."""

    def __init__(self, sandbox: Sandbox, schedule: Schedule) -> None:
        super().__init__(sandbox.store, changed=lambda: None)
        self._schedule = schedule

    def strikes(self, name: str, phone: str) -> sms_faults.Fault | None:
        for scheduled, seconds in HIDDEN.get(name, {name: 0.0}).items():
            if self._schedule.strikes(scheduled, phone):
                return sms_faults.Fault(name, rate=1.0, seed=0, times=None, parameters={"seconds": seconds})
        return None
