"""Contract cases 40, 41, 47 and 48: filters, seek and detach."""

from datetime import UTC, datetime, timedelta

from google.pubsub_v1.types import DetachSubscriptionRequest, SeekRequest
from grpc import StatusCode

from .parts import Bus, refusal, texts


async def test_40_a_filter_lets_through_what_matches(bus: Bus) -> None:
    topic, subscription = await bus.pair(filter='attributes.type = "labour.completed"')

    await bus.publish(topic, "no", attributes={"type": "labour.begun"})
    await bus.publish(topic, "yes", attributes={"type": "labour.completed"})
    await bus.publish(topic, "neither")

    received = texts(await bus.pull(subscription, 3, within=1))
    assert sorted(received) == (["neither", "no", "yes"] if bus.deviates(40) else ["yes"])


async def test_41_a_filter_that_cannot_be_read_is_refused(bus: Bus) -> None:
    topic = await bus.topic()

    refused = await refusal(bus.subscribe(topic, filter="attributes.type ="))

    assert refused is (None if bus.deviates(41) else StatusCode.INVALID_ARGUMENT)


async def test_47_a_seek_forward_purges_and_a_seek_back_replays(bus: Bus) -> None:
    topic, subscription = await bus.pair(retain_acked_messages=True)
    before = datetime.now(UTC) - timedelta(minutes=1)
    await bus.publish(topic, "a", "b")
    await bus.ack(subscription, *await bus.pull(subscription, 2))

    await bus.subscriber.seek(request=SeekRequest(subscription=subscription, time=before))
    assert sorted(texts(await bus.pull(subscription, 2))) == ["a", "b"]

    await bus.publish(topic, "c")
    await bus.subscriber.seek(
        request=SeekRequest(subscription=subscription, time=datetime.now(UTC) + timedelta(minutes=1))
    )
    assert await bus.nothing(subscription)


async def test_48_a_detached_subscription_gets_nothing_more(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "dropped")

    detached = await refusal(
        bus.publisher.detach_subscription(request=DetachSubscriptionRequest(subscription=subscription))
    )

    if bus.deviates(48):
        assert detached is StatusCode.UNIMPLEMENTED
        return
    assert detached is None
    assert (await bus.subscriber.get_subscription(subscription=subscription)).detached
    pulled = bus.subscriber.pull(subscription=subscription, max_messages=1, retry=None)
    assert await refusal(pulled) is StatusCode.FAILED_PRECONDITION
    assert [name async for name in await bus.publisher.list_topic_subscriptions(topic=topic)] == []
