"""Contract cases 25, 31, 32 and 35 to 39: leases, dead letters, backoff, ordering and exactly-once."""

import asyncio
import time

import pytest
from google.api_core.exceptions import InvalidArgument
from google.protobuf.duration_pb2 import Duration
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]

from .parts import Bus, texts

LEASE = 10.0
SLACK = 0.5
"""Google's emulator counts in ticks."""


async def test_25_31_32_a_lease_holds_ends_at_its_deadline_and_can_be_extended(buses: list[Bus]) -> None:
    """The shortest lease is ten seconds, so these cases wait together, on both emulators at once."""
    held, ended = a_leased_message_is_not_delivered_again, a_lease_ends_at_its_deadline
    claims = (held, ended, an_extension_keeps_the_lease_past_its_deadline)

    await asyncio.gather(*[claim(bus) for claim in claims for bus in buses])


async def a_leased_message_is_not_delivered_again(bus: Bus) -> None:
    subscription, _ = await bus.leased(ack_deadline_seconds=60)

    assert await bus.nothing(subscription, within=LEASE + 2)


async def a_lease_ends_at_its_deadline(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "left alone")
    leased = time.monotonic()
    (first,) = await bus.pull(subscription)

    (second,) = await bus.pull(subscription)

    assert time.monotonic() - leased >= LEASE - SLACK
    assert second.message.message_id == first.message.message_id


async def an_extension_keeps_the_lease_past_its_deadline(bus: Bus) -> None:
    subscription, received = await bus.leased()

    await bus.extend(subscription, 20, received)

    assert await bus.nothing(subscription, within=LEASE + 2)


async def test_35_five_nacks_make_a_dead_letter_that_tells_where_it_comes_from(bus: Bus) -> None:
    topic, dead = await bus.topic(), await bus.topic()
    morgue = await bus.subscription(dead)
    subscription = await bus.subscription(topic, dead_letter_policy={"dead_letter_topic": dead})
    (message_id,) = await bus.publish(topic, "poison", attributes={"type": "labour.begun"})

    attempts = []
    for _ in range(5):
        (received,) = await bus.pull(subscription)
        assert received.message.message_id == message_id
        attempts.append(received.delivery_attempt)
        await bus.nack(subscription, received)

    # Google's forwards only when the message is pulled once more.
    assert await bus.nothing(subscription, within=3)
    (letter,) = await bus.pull(morgue)
    assert attempts == [1, 2, 3, 4, 5]
    assert letter.message.data == b"poison"
    attributes = dict(letter.message.attributes)
    published = attributes.pop("CloudPubSubDeadLetterSourceTopicPublishTime")
    assert published.startswith("20")
    assert attributes == {
        "type": "labour.begun",
        "CloudPubSubDeadLetterSourceDeliveryCount": "5",
        "CloudPubSubDeadLetterSourceSubscription": subscription.rpartition("/")[2],
        "CloudPubSubDeadLetterSourceSubscriptionProject": "contract",
    }


async def test_36_the_first_nack_already_backs_off(bus: Bus) -> None:
    backoff = 10 if bus.google else 2
    policy = {"minimum_backoff": Duration(seconds=backoff), "maximum_backoff": Duration(seconds=backoff)}
    subscription, received = await bus.leased(retry_policy=policy)

    nacked = time.monotonic()
    await bus.nack(subscription, received)
    (again,) = await bus.pull(subscription)

    assert again.message.message_id == received.message.message_id
    assert (time.monotonic() - nacked < backoff) is bus.deviates(36)


async def test_37_a_key_is_delivered_in_order_and_waits_for_its_acks(bus: Bus) -> None:
    topic, subscription = await bus.pair(enable_message_ordering=True)
    await bus.publish(topic, "1", "2", "3", ordering_key="ada")

    (first,) = await bus.pull(subscription, 1)
    assert first.message.ordering_key == "ada"
    assert await bus.nothing(subscription)
    await bus.ack(subscription, first)
    (second,) = await bus.pull(subscription, 1)
    await bus.ack(subscription, second)

    assert texts([first, second, *await bus.pull(subscription, 1)]) == ["1", "2", "3"]


async def test_38_a_nack_replays_its_key_in_order_even_what_was_acked(bus: Bus) -> None:
    topic, subscription = await bus.pair(enable_message_ordering=True)
    await bus.publish(topic, "1", "2", "3", ordering_key="ada")
    received = await bus.pull(subscription, 3)
    assert texts(received) == ["1", "2", "3"]

    await bus.ack(subscription, received[1])
    await bus.nack(subscription, received[0])

    replayed = texts(await bus.pull(subscription, 3, within=5))
    assert (replayed == ["1", "2", "3"]) is not bus.deviates(38)


async def test_39_with_exactly_once_a_stale_ack_id_is_refused_by_name(bus: Bus) -> None:
    subscription, stale = await bus.leased(enable_exactly_once_delivery=True)
    await bus.nack(subscription, stale)
    (valid,) = await bus.pull(subscription)

    with pytest.raises(InvalidArgument) as refused:
        await bus.ack(subscription, stale)

    (info,) = refused.value.details
    assert isinstance(info, ErrorInfo)
    assert dict(info.metadata) == {stale.ack_id: "PERMANENT_FAILURE_INVALID_ACK_ID"}
    await bus.ack(subscription, valid)
