"""Scenarios of a relay."""

import asyncio
from contextlib import suppress

from sqlalchemy import text

from e2e.experiments.museum.testbed import Hold, Testbed, armed
from e2e.support.crash import crash_at
from messaging import relay, unit_of_work
from messaging.errors import PublishRejected
from messaging.relay import Relay

TOO_LONG = "UPDATE outbox SET attributes = attributes || jsonb_build_object('long', repeat('x', 1025))"


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


async def the_bus_rejects_an_event(bed: Testbed, part: type[Relay]) -> list[str]:
    """The bus rejects event 1, one of whose attributes is too long. Event 2 belongs to another labour. The relay makes three
    passes.
    """
    await bed.emit(1, labour="ada")
    async with bed.labour.begin() as connection:
        await connection.execute(text(TOO_LONG))
    await bed.emit(2, labour="bea")

    one = part(bed.labour, bed.bus)
    for _ in range(3):
        with suppress(PublishRejected):
            await one.run_once()

    waits = "held-up: event 2 waits behind event 1 of another labour, which the bus rejects"
    return [waits] if await bed.check_bus(2) else []
