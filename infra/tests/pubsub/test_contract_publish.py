"""Contract cases 15 to 22: publishing and fan-out."""

import pytest
from google.pubsub_v1.types import PubsubMessage
from grpc import StatusCode

from .parts import Bus, refusal, texts


async def test_15_message_ids_are_unique(bus: Bus) -> None:
    topic, other = await bus.topic(), await bus.topic()

    ids = [
        *await bus.publish(topic, *"abcde"),
        *await bus.publish(topic, *"fghij"),
        *await bus.publish(other, *"klmno"),
    ]

    assert len(set(ids)) == 15


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

    expected = (
        {StatusCode.DEADLINE_EXCEEDED, StatusCode.INTERNAL} if bus.deviates(20) else {StatusCode.INVALID_ARGUMENT}
    )
    assert await refusal(publish) in expected


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

    assert texts(await bus.pull(subscription, 2, within=1)) == ["in time"]
