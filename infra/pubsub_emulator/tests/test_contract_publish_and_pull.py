"""Contract cases 15 to 30, 33 and 34, without 25: publishing and fan-out; pull, ack, nack and extend."""

import asyncio

import pytest
from google.pubsub_v1.types import PubsubMessage
from grpc import StatusCode

from .parts import PROJECT, Bus, fresh, refusal, texts


async def test_15_message_ids_are_unique(bus: Bus) -> None:
    topic, other = await bus.topic(), await bus.topic()

    ids = [await bus.publish(where, *"abcde") for where in (topic, topic, other)]

    assert len({*ids[0], *ids[1], *ids[2]}) == 15


async def test_16_neither_a_publish_nor_a_message_may_be_empty(bus: Bus) -> None:
    topic = await bus.topic()

    assert await refusal(bus.publish(topic)) is StatusCode.INVALID_ARGUMENT
    assert await refusal(bus.publish(topic, "")) is StatusCode.INVALID_ARGUMENT


async def test_17_attributes_alone_are_enough(bus: Bus) -> None:
    topic, subscription = await bus.pair()

    await bus.publish(topic, "", attributes={"type": "labour.begun"})

    (received,) = await bus.pull(subscription)
    assert dict(received.message.attributes) == {"type": "labour.begun"}


async def test_18_a_publish_takes_1000_messages_and_no_more(bus: Bus) -> None:
    topic = await bus.topic()

    assert len(await bus.publish(topic, *["x"] * 1000)) == 1000
    assert await refusal(bus.publish(topic, *["x"] * 1001)) is StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "attributes",
    [{f"key{n}": "" for n in range(101)}, {"k" * 257: "v"}, {"k": "v" * 1025}, {"googly": "v"}],
    ids=["101 attributes", "a key of 257 bytes", "a value of 1025 bytes", "a key with goog"],
)
async def test_19_attributes_have_limits(bus: Bus, attributes: dict[str, str]) -> None:
    topic = await bus.topic()

    refused = await refusal(bus.publish(topic, "x", attributes=attributes))

    assert refused is (None if bus.deviates(19) else StatusCode.INVALID_ARGUMENT)


async def test_20_a_publish_over_10_megabytes_is_refused_at_once(bus: Bus) -> None:
    topic = await bus.topic()
    huge = [PubsubMessage(data=b"x" * 12_000_000)]

    publish = bus.publisher.publish(topic=topic, messages=huge, retry=None, timeout=2 if bus.google else 20)

    googles = (StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL)
    assert await refusal(publish) in (googles if bus.deviates(20) else (StatusCode.INVALID_ARGUMENT,))


async def test_21_every_subscription_gets_every_message_once(bus: Bus) -> None:
    topic = await bus.topic()
    first, second = await bus.subscription(topic), await bus.subscription(topic)

    await bus.publish(topic, "a", "b", "c")

    for subscription in (first, second):
        assert sorted(texts(await bus.pull(subscription, 3))) == ["a", "b", "c"]
        assert await bus.nothing(subscription)


async def test_22_a_late_subscription_sees_nothing_older(bus: Bus) -> None:
    topic = await bus.topic()
    await bus.publish(topic, "too early")

    subscription = await bus.subscription(topic)
    await bus.publish(topic, "in time")

    assert texts(await bus.pull(subscription, 2, within=3)) == ["in time"]


async def test_23_a_pull_must_ask_for_something(bus: Bus) -> None:
    _, subscription = await bus.pair()

    refused = await refusal(bus.subscriber.pull(subscription=subscription, max_messages=0, retry=None))

    assert refused is StatusCode.INVALID_ARGUMENT


async def test_24_a_waiting_pull_wakes_when_something_is_published(bus: Bus) -> None:
    topic, subscription = await bus.pair()

    waiting = asyncio.create_task(bus.pull(subscription))
    await asyncio.wait([waiting], timeout=0.3)
    assert not waiting.done()
    await bus.publish(topic, "wake up")

    assert texts(await waiting) == ["wake up"]


async def test_26_what_is_acked_never_returns(bus: Bus) -> None:
    subscription, received = await bus.leased()

    await bus.ack(subscription, received)
    # A nack of what is acked must not bring it back either.
    await bus.nack(subscription, received)

    assert await bus.nothing(subscription)


async def test_27_acking_twice_is_fine(bus: Bus) -> None:
    subscription, received = await bus.leased()

    await bus.ack(subscription, received)

    assert await refusal(bus.ack(subscription, received)) is None


async def test_28_bad_ack_ids_are_refused(bus: Bus) -> None:
    _, subscription = await bus.pair()

    for ack_ids in ([], [""], ["nonsense"]):
        acked = bus.subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids, retry=None)
        request = {"subscription": subscription, "ack_ids": ack_ids, "ack_deadline_seconds": 10}
        extended = bus.subscriber.modify_ack_deadline(request, retry=None)
        assert await refusal(acked) is StatusCode.INVALID_ARGUMENT
        assert await refusal(extended) is StatusCode.INVALID_ARGUMENT


async def test_29_acking_on_a_missing_subscription_is_not_found(bus: Bus) -> None:
    _, received = await bus.leased()

    missing = f"{PROJECT}/subscriptions/{fresh('missing')}"

    assert await refusal(bus.ack(missing, received)) is StatusCode.NOT_FOUND


async def test_30_a_nack_brings_the_same_message_under_a_new_ack_id(bus: Bus) -> None:
    subscription, first = await bus.leased()

    await bus.nack(subscription, first)

    (second,) = await bus.pull(subscription)
    assert second.message.message_id == first.message.message_id
    assert second.message.publish_time == first.message.publish_time
    assert second.ack_id != first.ack_id


async def test_33_an_extension_above_ten_minutes_is_refused(bus: Bus) -> None:
    subscription, received = await bus.leased()

    refused = await refusal(bus.extend(subscription, 601, received))

    assert refused is (None if bus.deviates(33) else StatusCode.INVALID_ARGUMENT)


async def test_34_attempts_are_not_counted_without_a_dead_letter_topic(bus: Bus) -> None:
    subscription, first = await bus.leased()

    await bus.nack(subscription, first)
    (second,) = await bus.pull(subscription)

    assert (first.delivery_attempt, second.delivery_attempt) == (0, 0)
