"""Scenarios of a consumer."""

import asyncio
import os
import sys
from asyncio.subprocess import PIPE
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from unittest.mock import patch
from uuid import UUID

import msgspec
from sqlalchemy import text

from contracts.events import Event
from e2e.experiments.museum.testbed import Hold, MakeConsumer, Testbed, armed
from e2e.support.crash import crash_at
from e2e.support.sample_events import Happened
from fern.settings import PROJECT_ROOT
from messaging import claims, consumer, relay
from messaging.bus import Message
from messaging.consumer import React, Verdict
from messaging.errors import RetentionTooShort
from messaging.relay import Relay
from messaging.retention import Retention

LockKey = Callable[[str, UUID], int]


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


async def two_consumers_get_the_same_event(bed: Testbed, part: MakeConsumer) -> list[str]:
    """A consumer has written the effect of event 1 and has not committed yet, when its lease runs out and the bus delivers the
    event to a second consumer. The first one goes on when the second has answered, or waits for a lock of the first.
    """
    await bed.emit(1)
    await bed.publish_all()
    [message] = await bed.pull(1)
    hold = Hold()
    with armed(consumer.AFTER_EFFECT, hold):
        first = asyncio.create_task(bed.consumer(part).handle([message]))
        await hold.reached.wait()
        await bed.end_lease(message)
        again = await bed.pull(1)
        second = asyncio.create_task(bed.consumer(part).handle(again))

        await _is_held_up(bed, "museum", until=second)
        hold.released.set()
        await bed.answer([message], await first)
        await bed.answer(again, await second)
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


async def two_events_have_the_same_time(bed: Testbed, part: MakeConsumer) -> list[str]:
    """Events 1 and 2 of a labour happen in the same millisecond. They are delivered one after the other."""
    now = datetime.now(UTC)
    async with bed.in_labour() as uow:
        for number in (1, 2):
            uow.emit(Happened("ada", number), key="ada", at=now)
    await bed.publish_all()

    for message in sorted(await bed.pull(2), key=lambda message: int(message.message_id)):
        await bed.deliver([message], to=bed.consumer(part))

    return await bed.check_effects(1, 2)


async def two_labours_take_turns(bed: Testbed, part: MakeConsumer) -> list[str]:
    """Events 1 and 2 are about one labour, and then event 3 is about another one. They are delivered one after the other."""
    await bed.emit(1, 2, labour="ada")
    await bed.emit(3, labour="bea")
    await bed.publish_all()

    consumer = bed.consumer(part)
    for message in sorted(await bed.pull(3), key=lambda message: int(message.message_id)):
        await bed.deliver([message], to=consumer)

    return await bed.check_effects(1, 2, 3)


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


async def a_birth_overtakes_a_subscription(bed: Testbed, part: React[Event]) -> list[str]:
    """Grace subscribes, and then the baby is born. The consumer gets the event of the birth first."""
    grace, born = await bed.emit_a_birth()
    await bed.publish_all()

    reacting = bed.notification_consumer(part)
    subscriptions = [f"notification.{event.type}" for event in (born, grace)]
    await bed.deliver(await bed.bus.pull(subscriptions[0], 1, wait=30.0), to=reacting)
    await bed.deliver_all(reacting, subscriptions[1:])
    await bed.deliver_all(reacting, subscriptions)

    async with bed.notification.connect() as connection:
        told = (await connection.execute(text("SELECT count(*) FROM notification"))).scalar_one()
    return [] if told else ["lost: Grace is on the roster and is not told"]


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
    await bed.answer(batch, await other)
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
