"""Scenarios of a dispatcher."""

import asyncio
import tempfile
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import UUID

from sqlalchemy import text
from uuid_utils.compat import uuid7

import sms_sandbox
from contracts.events import Event, LabourCompleted
from e2e.experiments.museum.testbed import PHONE, Hold, Testbed, armed, our_reaction
from e2e.support.crash import SimulatedCrash
from messaging.consumer import React
from messaging.unit_of_work import UnitOfWork
from notification.delivery import dispatcher
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import SendOutcome, Twilio
from notification.domain.notification import Notification

NO_CALLBACK = "http://127.0.0.1:9/"  # nothing listens there
ANNOUNCEMENTS, PEOPLE = 4, 10
ADA = UUID(int=6)

Post = Callable[[UnitOfWork, Sequence[Notification]], Awaitable[object]]


async def a_sender_dies_after_the_call(bed: Testbed, part: Callable[[Twilio], React[Event]]) -> list[str]:
    """Grace must be told that the baby is here. The process crashes when the provider has accepted the text, and before
    it records that. It is started again.
    """
    grace, born = await bed.emit_a_birth()
    await bed.publish_all()

    async with _provider(crashes=True) as (provider, sandbox):
        sender, reconciler = _sender(bed, provider, lease_seconds=0.0), _reconciler(bed, provider)
        reacting = bed.notification_consumer(part(provider))
        for _ in range(2):
            with suppress(SimulatedCrash):
                await bed.deliver_all(reacting, [f"notification.{event.type}" for event in (grace, born)])
                await _settle(bed, sender, reconciler)
        return _check_texts(sandbox)


async def a_sender_is_paused_beyond_its_lease(bed: Testbed, part: type[Dispatcher]) -> list[str]:
    """A dispatcher has taken the text for Grace, and is paused. Its lease expires, the provider reports no such text,
    and another dispatcher sends it. Then the paused dispatcher continues.
    """
    grace, born = await bed.emit_a_birth()
    await bed.publish_all()
    reacting = bed.notification_consumer(our_reaction)
    await bed.deliver_all(reacting, [f"notification.{event.type}" for event in (grace, born)])

    async with _provider() as (provider, sandbox):
        other, reconciler = _sender(bed, provider), _reconciler(bed, provider)
        paused, hold = _sender(bed, provider, part, lease_seconds=0.0, call_within=0.0), Hold()
        with armed(dispatcher.AFTER_TAKE, hold):
            first = asyncio.create_task(paused.run_once())
            await hold.reached.wait()
            await _settle(bed, other, reconciler)
            hold.released.set()
            await first
        await _settle(bed, other, reconciler)
        return _check_texts(sandbox)


async def another_labour_has_much_to_say(bed: Testbed, part: Post) -> list[str]:
    """Four announcements of one labour to ten people wait to be sent. Then another labour is completed, and Grace must
    be told. The dispatcher sends one text at a time.
    """
    for sequence in range(ANNOUNCEMENTS):
        async with bed.in_notification() as uow:
            await part(uow, [_text("labour.announced", ADA, number, sequence) for number in range(PEOPLE)])
    async with bed.in_notification() as uow:
        await part(uow, [_text("labour.completed", UUID(int=7), PEOPLE, 1)])

    async with _provider() as (provider, sandbox):
        sender = _sender(bed, provider, in_flight=1)
        before = 0
        while await sender.run_once() and not sandbox.sandbox.store.newest(_phone(PEOPLE), 1):
            before += 1
        return [f"late: the birth was sent after {before} texts of another labour"] if before else []


def _text(event_type: str, labour_id: UUID, person: int, sequence: int) -> Notification:
    new_id, body = uuid7(), f"{event_type} {sequence}"
    return Notification(
        new_id, uuid7(), event_type, labour_id, UUID(int=person), "Grace", _phone(person), body, 1, sequence=sequence
    )


def _phone(person: int) -> str:
    return f"+120255502{person:02}"


def _check_texts(sandbox: sms_sandbox.Address) -> list[str]:
    texts = len(sandbox.sandbox.store.newest(PHONE, 100))
    kind = "duplicated" if texts else "lost"
    return [] if texts == 1 else [f"{kind}: {LabourCompleted.type} was told to the same person {texts} times"]


def _sender(bed: Testbed, provider: Twilio, make: type[Dispatcher] = Dispatcher, **options: float) -> Dispatcher:
    return make(bed.in_notification, provider, callback_url=NO_CALLBACK, **options)  # type: ignore[arg-type]


def _reconciler(bed: Testbed, provider: Twilio) -> Reconciler:
    return Reconciler(bed.in_notification, provider, policies={}, quarantine=0.0, ask_interval=0.0)


@asynccontextmanager
async def _provider(*, crashes: bool = False) -> AsyncIterator[tuple[Twilio, sms_sandbox.Address]]:
    with tempfile.TemporaryDirectory(prefix="fern-museum-") as directory:
        async with sms_sandbox.running(Path(directory)) as sandbox:
            account = {"account_sid": "AC" + "0" * 32, "auth_token": "museum", "sender": "+15005550006"}
            provider = (CrashingTwilio if crashes else Twilio)(**account, base_url=sandbox.url, timeout=5.0)
            yield provider, sandbox
            await provider.close()


class CrashingTwilio(Twilio):
    """The real client, which crashes after its first call."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._crashes = True

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        outcome = await super().send(to=to, body=body, status_callback=status_callback)
        if self._crashes:
            self._crashes = False
            raise SimulatedCrash
        return outcome


async def _settle(bed: Testbed, sender: Dispatcher, reconciler: Reconciler) -> None:
    while await _unsettled(bed):
        await sender.run_once()
        await reconciler.run_once()


async def _unsettled(bed: Testbed) -> bool:
    async with bed.notification.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM notification WHERE state <> 'SENT'"))
        return found.first() is not None
