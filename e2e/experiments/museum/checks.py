"""The scenes: each is played with the part on trial, ours or a mistake, among parts that are all ours, and says what broke.

Nothing is left to luck: whoever must be slow is held at a fault point or on the line to the bus, whoever must die dies there,
and a scene ends when the bus has nothing left to deliver.
"""

import asyncio
import os
import sys
import tempfile
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import msgspec
from sqlalchemy import text
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourCompleted, SubscriberAdded
from contracts.registry import decode
from e2e.experiments.museum.stage import Crash, Finding, Hold, Line, MakeConsumer, Stage, armed, die
from fern.settings import PROJECT_ROOT
from messaging import consumer, relay, unit_of_work
from messaging.bus import Message
from messaging.consumer import Consumer, React, Verdict, decoder
from messaging.errors import RetentionTooShort
from messaging.relay import Relay
from messaging.retention import Retention
from notification.delivery.twilio import SendOutcome, Twilio
from notification.domain.reactions import TOPICS
from tests.sms_parts import PHONE, post_office

LockKey = Callable[[str, UUID], int]


# ── the scenes of the relay ──


async def a_relay_dies_on_its_way_to_the_bus(stage: Stage, part: type[Relay]) -> list[Finding]:
    """A relay dies at the moment it would publish events 1 and 2. The next one takes over."""
    await stage.happen(1, 2)

    with suppress(Crash):
        await part(stage.labour, Line(stage.bus, die)).run_once()
    await stage.publish_all(by=part(stage.labour, stage.bus))

    return await stage.judge_bus(1, 2)


async def an_earlier_number_commits_later(stage: Stage, part: type[Relay]) -> list[Finding]:
    """Ada's transaction gets the first position in the outbox and is slow to commit; Bea's gets the second and is quick. The
    relay makes a pass between the two commits, and goes on afterwards.
    """
    one = part(stage.labour, stage.bus)
    slow = Hold()
    with armed(unit_of_work.BEFORE_COMMIT, slow):
        ada = asyncio.create_task(stage.happen(1, labour="ada"))
        await slow.reached.wait()
        await stage.happen(2, labour="bea")

        await one.run_once()
        slow.let_go.set()
        await ada
    await stage.publish_all(by=one)

    return await stage.judge_bus(1, 2)


async def a_slow_relay_and_a_quick_one(stage: Stage, part: type[Relay]) -> list[Finding]:
    """One relay has event 1 of a labour in its hands, on a slow line to the bus. Another one makes a pass in the meantime."""
    await stage.happen(1, 2)
    slow = Hold()
    first = asyncio.create_task(part(stage.labour, Line(stage.bus, slow), batch_size=1).run_once())
    await slow.reached.wait()

    await part(stage.labour, stage.bus, batch_size=1).run_once()
    slow.let_go.set()
    await first
    await stage.publish_all(by=part(stage.labour, stage.bus))

    return await stage.judge_bus(1, 2)


# ── the scenes of the consumer ──


async def the_holder_of_an_event_dies(stage: Stage, part: MakeConsumer) -> list[Finding]:
    """A consumer is at work on event 1 when its lease runs out, and the bus gives the event to a second consumer. Then the
    first one dies.
    """
    await stage.happen(1)
    await stage.publish_all()
    [message] = await stage.pull(1)
    hold = Hold()
    with armed(consumer.AFTER_EFFECT, hold):
        holder = asyncio.create_task(stage.consumer(part).handle([message]))
        await hold.reached.wait()

        await stage.end_lease(message)
        await stage.deliver(await stage.pull(1), to=stage.consumer(part))
        holder.cancel()
        await asyncio.wait([holder])
    await stage.deliver_all(to=stage.consumer(part))

    return await stage.judge_effects(1)


async def a_consumer_dies_after_the_effect(stage: Stage, part: MakeConsumer) -> list[Finding]:
    """A consumer dies when the effect of event 1 is written and before the event is recorded as done. The bus delivers again."""
    await stage.happen(1)
    await stage.publish_all()

    with armed(consumer.AFTER_EFFECT, die), suppress(Crash):
        await stage.deliver_all(to=stage.consumer(part))
    await stage.deliver_all(to=stage.consumer(part))

    return await stage.judge_effects(1)


async def an_event_is_published_twice(stage: Stage, part: MakeConsumer) -> list[Finding]:
    """A relay dies after it published event 1 and before it marked it, so the next relay publishes it again."""
    await stage.happen(1)
    with armed(relay.AFTER_PUBLISH, die), suppress(Crash):
        await Relay(stage.labour, stage.bus).run_once()
    await stage.publish_all()

    await stage.deliver_all(to=stage.consumer(part))

    return await stage.judge_effects(1)


async def an_event_is_replayed_in_time(stage: Stage, part: type[Retention]) -> list[Finding]:
    """Events may be replayed for 90 days. Somebody wants to save space and keep claims for a week; if that is refused, as long
    as they are told to. Then event 1 is replayed, 60 days after it was handled.
    """
    horizon = timedelta(days=90)
    await stage.happen(1)
    await stage.publish_all()
    await stage.deliver_all(to=stage.consumer())

    try:
        retention = part(stage.notification, keep=timedelta(days=7), replay_horizon=horizon)
    except RetentionTooShort:
        retention = part(stage.notification, keep=horizon, replay_horizon=horizon)
    await retention.run_once(datetime.now(UTC) + timedelta(days=60))
    await stage.replay()
    await stage.deliver_all(to=stage.consumer())

    return await stage.judge_effects(1)


async def two_processes_want_the_same_event(stage: Stage, part: LockKey) -> list[Finding]:
    """Two real processes, with different hash seeds. One has claimed event 1 and freezes until its lease runs out. The other one
    gets event 1 again and, in the same batch, event 2 of another labour.
    """
    await stage.happen(1, labour="ada")
    await stage.publish_all()
    [message] = await stage.pull(1)
    frozen, well = [await _start(stage, part, name, hash_seed) for name, hash_seed in (("frozen", "1"), ("well", "2"))]
    try:
        assert await _ask(frozen, [message]) == b"frozen\n"
        await stage.happen(2, labour="bea")
        await stage.publish_all()
        await stage.end_lease(message)
        batch = await stage.pull(2)

        answer = asyncio.create_task(_ask(well, batch))
        held_up = await _is_held_up(stage, "well", until=answer)
        frozen.kill()
        verdicts = [Verdict(word) for word in (await answer).decode().split()]
    finally:
        for process in (frozen, well):
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
    await stage.settle(batch, verdicts)
    await stage.deliver_all(to=stage.consumer())

    waited = Finding("held-up", "event 2", "waited for a consumer that was busy with event 1")
    return [waited] * held_up + await stage.judge_effects(1, 2)


async def _start(stage: Stage, lock_key: LockKey, name: str, hash_seed: str) -> Process:
    return await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", "from e2e.experiments.museum.stage import be_a_consumer; be_a_consumer()"),
        *(stage.notification_url, f"{lock_key.__module__}:{lock_key.__name__}", name),
        cwd=PROJECT_ROOT,
        env={**os.environ, "PYTHONHASHSEED": hash_seed},
        stdin=PIPE,
        stdout=PIPE,
    )


async def _ask(process: Process, batch: list[Message]) -> bytes:
    """Gives it a batch; returns the line that it says."""
    assert process.stdin
    assert process.stdout
    process.stdin.write(msgspec.json.encode(batch) + b"\n")
    return await process.stdout.readline()


async def _is_held_up(stage: Stage, name: str, *, until: asyncio.Task[bytes]) -> bool:
    """Whether this process comes to wait for somebody's lock before it answers."""
    waits = text("""
        SELECT 1 FROM pg_stat_activity
        WHERE datname = current_database() AND application_name = :name AND wait_event_type = 'Lock'
    """)
    while not until.done():
        async with stage.notification.connect() as connection:
            if (await connection.execute(waits, {"name": name})).first():
                return True
        await asyncio.sleep(0.01)
    return False


# ── the scene of the sender ──


async def a_sender_dies_after_the_call(stage: Stage, part: Callable[[Twilio], React[Event]]) -> list[Finding]:
    """Grace is to be told that the baby is here. The process dies when the provider has taken the text, and before it has
    written that down. It is started again.
    """
    about: dict[str, Any] = {"labour_id": uuid7(), "roster_version": 1}
    grace = SubscriberAdded(**about, person_id=uuid7(), name="Grace", phone=PHONE)
    born = LabourCompleted(**about, mother_name="Ada", completed_at=datetime.now(UTC))
    async with stage.in_labour() as uow:
        for event in (grace, born):
            uow.emit(event, key=str(event.labour_id), at=datetime.now(UTC))
    await stage.publish_all()

    with tempfile.TemporaryDirectory(prefix="fern-museum-") as directory:
        async with post_office(stage.in_notification, Path(directory)) as office:
            provider = Deadly(office.provider)
            reacting = Consumer(
                "notification",
                units_of_work=stage.in_notification,
                decode=decoder(TOPICS, decode, {}),
                react=part(provider),
                publisher=stage.bus,
            )
            for _ in range(2):
                with suppress(Crash):
                    await stage.deliver_all(reacting, [f"notification.{event.type}" for event in (grace, born)])
                    while await _unsettled(stage):
                        await office.dispatcher(provider, lease_seconds=0.0).run_once()
                        await office.reconciler(provider).run_once()
            texts = len(office.sms.sandbox.store.newest(PHONE, 100))

    if texts == 1:
        return []
    return [Finding("duplicated" if texts else "lost", born.type, f"was told to the same person {texts} times")]


class Deadly(Twilio):
    """The real client. Whoever is the first to send a text with it does not live to see the answer."""

    def __init__(self, provider: Twilio) -> None:
        self._provider, self._lethal = provider, True

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        outcome = await self._provider.send(to=to, body=body, status_callback=status_callback)
        if self._lethal:
            self._lethal = False
            raise Crash
        return outcome

    async def find(self, *, to: str, reference: str) -> str | None:
        return await self._provider.find(to=to, reference=reference)


async def _unsettled(stage: Stage) -> bool:
    async with stage.notification.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM notification WHERE state <> 'SENT'"))
        return found.first() is not None
