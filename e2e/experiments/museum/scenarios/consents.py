"""Scenarios of consent."""

import asyncio
from collections.abc import Awaitable, Callable, Collection
from functools import partial
from unittest.mock import patch

import asyncpg
from sqlalchemy import text

from contracts.events import LabourCompleted, SubscriberAdded
from e2e.experiments.museum.testbed import PHONE, Hold, Testbed, armed
from e2e.support.waiting import eventually
from messaging import unit_of_work
from notification.application.batch_reaction import react_to_batch
from notification.delivery import consents
from notification.domain.consent import Consents, Mode

Load = Callable[[asyncpg.Connection, Collection[str]], Awaitable[Consents]]


async def a_yes_arrives_while_a_text_is_written(bed: Testbed, part: Load) -> list[str]:
    """Grace has been asked for her consent, and the baby is born. Her YES arrives when the consumer has written the text for her,
    and has not committed it.
    """
    await bed.emit_a_birth()
    await bed.publish_all()
    reaction = partial(react_to_batch, wake_dispatcher=lambda: None, consent=Mode.REQUIRED)
    reacting, hold = bed.notification_consumer(reaction), Hold()

    with patch.object(consents, "load", part):
        await bed.deliver_all(reacting, [f"notification.{SubscriberAdded.type}"])
        with armed(unit_of_work.BEFORE_COMMIT, hold):
            consuming = asyncio.create_task(bed.deliver_all(reacting, [f"notification.{LabourCompleted.type}"]))
            await hold.reached.wait()
            answering = asyncio.create_task(_say_yes(bed))
            await eventually(lambda: _waits_for_a_lock(bed), lambda waits: waits or answering.done())
            hold.released.set()
            await asyncio.gather(consuming, answering)

    return [f"lost: {LabourCompleted.type} waits for a consent that was given"] if await _waiting(bed) else []


async def _say_yes(bed: Testbed) -> None:
    async with bed.in_notification() as uow:
        await consents.grant(uow, PHONE, validity=3600.0)


async def _waits_for_a_lock(bed: Testbed) -> bool:
    async with bed.notification.connect() as connection:
        here = "database = (SELECT oid FROM pg_database WHERE datname = current_database())"
        waiting = await connection.execute(
            text(f"SELECT 1 FROM pg_locks WHERE NOT granted AND ({here} OR database IS NULL)")
        )
        return waiting.first() is not None


async def _waiting(bed: Testbed) -> bool:
    async with bed.notification.connect() as connection:
        found = await connection.execute(text("SELECT 1 FROM notification WHERE state = 'AWAITING_CONSENT'"))
        return found.first() is not None
