"""Contract cases 25, 31 and 32: what time does to a lease. The shortest lease is ten seconds, so they wait together,
on both emulators at once."""

import asyncio
import time

from .parts import Bus, texts

LEASE = 10.0
SLACK = 0.5
"""Google's emulator counts in ticks."""


async def test_25_31_32_a_lease_holds_ends_at_its_deadline_and_can_be_extended(buses: list[Bus]) -> None:
    claims = (
        a_leased_message_is_not_delivered_again,
        a_lease_ends_at_its_deadline,
        an_extension_keeps_the_lease_past_its_deadline,
    )

    await asyncio.gather(*[claim(bus) for claim in claims for bus in buses])


async def a_leased_message_is_not_delivered_again(bus: Bus) -> None:
    topic, subscription = await bus.pair(ack_deadline_seconds=60)
    await bus.publish(topic, "held")
    assert texts(await bus.pull(subscription)) == ["held"]

    assert await bus.nothing(subscription, within=LEASE + 2)


async def a_lease_ends_at_its_deadline(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "left alone")
    (first,) = await bus.pull(subscription)
    leased = time.monotonic()

    (second,) = await bus.pull(subscription, within=LEASE + 20)

    assert time.monotonic() - leased >= LEASE - SLACK
    assert second.message.message_id == first.message.message_id


async def an_extension_keeps_the_lease_past_its_deadline(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "extended")
    (received,) = await bus.pull(subscription)

    await bus.extend(subscription, 20, received)

    assert await bus.nothing(subscription, within=LEASE + 2)
