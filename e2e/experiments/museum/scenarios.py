"""The scenarios. Each runs one part under test, ours or a mistake, among parts that are all ours, and returns the violations.

Nothing depends on timing: a slow process is held at a fault point, a crash happens at one, and a scenario ends when the bus has
nothing left to deliver.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import msgspec
from sqlalchemy import text
from uuid_utils.compat import uuid7

import sms_sandbox
from contracts.events import Event, LabourCompleted, SubscriberAdded
from contracts.registry import decode
from e2e.experiments.museum.testbed import Hold, MakeConsumer, Testbed, armed
from e2e.support.crash import SimulatedCrash, crash_at
from fern.settings import PROJECT_ROOT
from messaging import claims, consumer, relay, unit_of_work
from messaging.bus import Message
from messaging.consumer import Consumer, React, Verdict, decoder
from messaging.errors import RetentionTooShort
from messaging.relay import Relay
from messaging.retention import Retention
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import SendOutcome, Twilio
from notification.domain.reactions import TOPICS

LockKey = Callable[[str, UUID], int]

PHONE = "+12025550123"
NO_CALLBACK = "http://127.0.0.1:9/"  # nothing listens there


# ── the relay ──


async def a_relay_dies_on_its_way_to_the_bus(bed: Testbed, part: type[Relay]) -> list[str]:
    """A relay crashes just before it publishes events 1 and 2. The next relay continues."""
    await bed.emit(1, 2)

    with crash_at(relay.AFTER_READ):
        await part(bed.labour, bed.bus).run_once()
    await bed.publish_all(by=part(bed.labour, bed.bus))

    return await bed.check_bus(1, 2)


async def an_earlier_number_commits_later(bed: Testbed, part: type[Relay]) -> list[str]:
    """Ada's transaction takes the first position in the outbox and commits late; Bea's takes the second and commits at once. The
    relay makes a pass between the two commits, and more afterwards.
    """
    one = part(bed.labour, bed.bus)
    slow = Hold()
    with armed(unit_of_work.BEFORE_COMMIT, slow):
        ada = asyncio.create_task(bed.emit(1, labour="ada"))
        await slow.reached.wait()
        await bed.emit(2, labour="bea")

        await one.run_once()
        slow.released.set()
        await ada
    await bed.publish_all(by=one)

    return await bed.check_bus(1, 2)


async def a_slow_relay_and_a_quick_one(bed: Testbed, part: type[Relay]) -> list[str]:
    """One relay has read event 1 of a labour, and its call to the bus is slow. Another relay makes a pass meanwhile."""
    await bed.emit(1, 2)
    slow = Hold()
    with armed(relay.AFTER_READ, slow):
        first = asyncio.create_task(part(bed.labour, bed.bus, batch_size=1).run_once())
        await slow.reached.wait()

        await part(bed.labour, bed.bus, batch_size=1).run_once()
        slow.released.set()
        await first
    await bed.publish_all(by=part(bed.labour, bed.bus))

    return await bed.check_bus(1, 2)


# ── the consumer ──


async def the_holder_of_an_event_dies(bed: Testbed, part: MakeConsumer) -> list[str]:
    """A consumer is handling event 1 when its lease runs out, and the bus delivers the event to a second consumer. Then the
    first consumer crashes.
    """
    await bed.emit(1)
    await bed.publish_all()
    [message] = await bed.pull(1)
    hold = Hold()
    with armed(consumer.AFTER_EFFECT, hold):
        holder = asyncio.create_task(bed.consumer(part).handle([message]))
        await hold.reached.wait()

        await bed.end_lease(message)
        await bed.deliver(await bed.pull(1), to=bed.consumer(part))
        holder.cancel()
        await asyncio.wait([holder])
    await bed.deliver_all(to=bed.consumer(part))

    return await bed.check_effects(1)


async def a_consumer_dies_after_the_effect(bed: Testbed, part: MakeConsumer) -> list[str]:
    """A consumer crashes after the effect of event 1 is written and before the claim is completed. The bus delivers again."""
    await bed.emit(1)
    await bed.publish_all()

    with crash_at(consumer.AFTER_EFFECT):
        await bed.deliver_all(to=bed.consumer(part))
    await bed.deliver_all(to=bed.consumer(part))

    return await bed.check_effects(1)


async def an_event_is_published_twice(bed: Testbed, part: MakeConsumer) -> list[str]:
    """A relay crashes after it has published event 1 and before it marks it, so the next relay publishes it again."""
    await bed.emit(1)
    with crash_at(relay.AFTER_PUBLISH):
        await Relay(bed.labour, bed.bus).run_once()
    await bed.publish_all()

    await bed.deliver_all(to=bed.consumer(part))

    return await bed.check_effects(1)


async def an_event_is_replayed_in_time(bed: Testbed, part: type[Retention]) -> list[str]:
    """Events may be replayed for 90 days. An operator configures that claims are kept for a week; if that is refused, for the
    90 days. Then event 1 is replayed, 60 days after it was handled.
    """
    horizon = timedelta(days=90)
    await bed.emit(1)
    await bed.publish_all()
    await bed.deliver_all(to=bed.consumer())

    try:
        retention = part(bed.notification, keep=timedelta(days=7), replay_horizon=horizon)
    except RetentionTooShort:
        retention = part(bed.notification, keep=horizon, replay_horizon=horizon)
    await retention.run_once(datetime.now(UTC) + timedelta(days=60))
    await bed.replay()
    await bed.deliver_all(to=bed.consumer())

    return await bed.check_effects(1)


async def two_processes_want_the_same_event(bed: Testbed, part: LockKey) -> list[str]:
    """Two processes, each with its own hash seed. One has claimed event 1 and is held until its lease runs out. The other one
    gets event 1 again and, in the same batch, event 2 of another labour.
    """
    await bed.emit(1, labour="ada")
    await bed.publish_all()
    [message] = await bed.pull(1)
    hold = Hold()
    with patch.object(claims, "lock_key", part), armed(consumer.AFTER_CLAIM, hold):
        holder = asyncio.create_task(bed.consumer().handle([message]))
        await hold.reached.wait()
    await bed.emit(2, labour="bea")
    await bed.publish_all()
    await bed.end_lease(message)
    batch = await bed.pull(2)

    other = asyncio.create_task(_handle_in_another_process(bed, part, batch))
    held_up = await _is_held_up(bed, "other", until=other)
    holder.cancel()
    await asyncio.wait([holder])
    await bed.settle(batch, await other)
    await bed.deliver_all(to=bed.consumer())

    waited = "held-up: event 2 waited for a consumer that was busy with event 1"
    return [waited] * held_up + await bed.check_effects(1, 2)


async def _handle_in_another_process(bed: Testbed, lock_key: LockKey, batch: list[Message]) -> list[Verdict]:
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from e2e.experiments.museum.testbed import run_consumer; run_consumer()"),
        *(bed.notification_url, f"{lock_key.__module__}:{lock_key.__name__}", "other"),
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONHASHSEED": "random"},
        stdin=PIPE,
        stdout=PIPE,
    )
    printed, _ = await process.communicate(msgspec.json.encode(batch) + b"\n")
    return [Verdict(word) for word in printed.decode().split()]


async def _is_held_up(bed: Testbed, name: str, *, until: asyncio.Task[list[Verdict]]) -> bool:
    """Whether this process waits for a lock of the database before it answers."""
    waits = text("""
        SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = :name AND wait_event_type = 'Lock'
    """)
    while not until.done():
        async with bed.notification.connect() as connection:
            if (await connection.execute(waits, {"name": name})).first():
                return True
        await asyncio.sleep(0.01)
    return False


# ── the sender ──


async def a_sender_dies_after_the_call(bed: Testbed, part: Callable[[Twilio], React[Event]]) -> list[str]:
    """Grace must be told that the baby is here. The process crashes when the provider has accepted the text, and before it
    records that. It is started again.
    """
    about: dict[str, Any] = {"labour_id": uuid7(), "roster_version": 1}
    grace = SubscriberAdded(**about, person_id=uuid7(), name="Grace", phone=PHONE)
    born = LabourCompleted(**about, mother_name="Ada", completed_at=datetime.now(UTC))
    async with bed.in_labour() as uow:
        for event in (grace, born):
            uow.emit(event, key=str(event.labour_id), at=datetime.now(UTC))
    await bed.publish_all()

    with tempfile.TemporaryDirectory(prefix="fern-museum-") as directory:
        async with sms_sandbox.running(Path(directory)) as sandbox:
            provider = CrashingTwilio(sandbox.url)
            units = bed.in_notification
            dispatcher = Dispatcher(units, provider, callback_url=NO_CALLBACK, lease_seconds=0.0, call_within=10.0)
            reconciler = Reconciler(units, provider, policies={}, quarantine=0.0, ask_interval=0.0)
            reacting = Consumer(
                "notification",
                units_of_work=units,
                decode=decoder(TOPICS, decode, {}),
                react=part(provider),
                publisher=bed.bus,
            )
            for _ in range(2):
                with suppress(SimulatedCrash):
                    await bed.deliver_all(reacting, [f"notification.{event.type}" for event in (grace, born)])
                    while await _unsettled(bed):
                        await dispatcher.run_once()
                        await reconciler.run_once()
            await provider.close()
            texts = len(sandbox.sandbox.store.newest(PHONE, 100))

    kind = "duplicated" if texts else "lost"
    return [] if texts == 1 else [f"{kind}: {born.type} was told to the same person {texts} times"]


class CrashingTwilio(Twilio):
    """The real client, which crashes after its first call."""

    def __init__(self, url: str) -> None:
        account = {"account_sid": "AC" + "0" * 32, "auth_token": "museum", "sender": "+15005550006"}
        super().__init__(**account, base_url=url, timeout=5.0)
        self._crashes = True

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        outcome = await super().send(to=to, body=body, status_callback=status_callback)
        if self._crashes:
            self._crashes = False
            raise SimulatedCrash
        return outcome


async def _unsettled(bed: Testbed) -> bool:
    async with bed.notification.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM notification WHERE state <> 'SENT'"))
        return found.first() is not None
