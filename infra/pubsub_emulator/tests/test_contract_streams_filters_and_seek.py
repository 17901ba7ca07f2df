"""Contract cases 40 to 48: filters, streaming pull, seek and detach."""

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from google.api_core.exceptions import InvalidArgument, NotFound
from google.pubsub_v1.types import SeekRequest
from grpc import StatusCode

from .parts import PROJECT, Bus, StreamingPull, fresh, refusal, texts


async def test_40_a_filter_lets_through_what_matches(bus: Bus) -> None:
    topic, subscription = await bus.pair(filter='attributes.type = "labour.completed"')

    await bus.publish(topic, "no", attributes={"type": "labour.begun"})
    await bus.publish(topic, "yes", attributes={"type": "labour.completed"})
    await bus.publish(topic, "neither")

    received = texts(await bus.pull(subscription, 3, within=3))
    assert sorted(received) == (["neither", "no", "yes"] if bus.deviates(40) else ["yes"])


async def test_41_a_filter_that_cannot_be_read_is_refused(bus: Bus) -> None:
    topic = await bus.topic()

    refused = await refusal(bus.subscribe(topic, filter="attributes.type ="))

    assert refused is (None if bus.deviates(41) else StatusCode.INVALID_ARGUMENT)


@pytest.mark.parametrize(
    "first",
    [{"subscription": ""}, {"ack_deadline": 0}, {"ack_deadline": 9}, {"ack_ids": ["x"]}],
    ids=["no subscription", "no deadline", "a deadline of 9 s", "an ack id from nowhere"],
)
async def test_42_a_bad_first_request_ends_the_stream(bus: Bus, first: dict[str, Any]) -> None:
    _, subscription = await bus.pair()

    request = {"subscription": subscription} | first

    with pytest.raises(InvalidArgument):
        await (await StreamingPull(bus).open(**request)).end()


async def _opened(bus: Bus) -> tuple[str, str, StreamingPull]:
    """A topic, a subscription and its stream, which is known to be open because it received a message."""
    topic, subscription = await bus.pair()
    stream = await StreamingPull(bus).open(subscription)
    await bus.publish(topic, "open")
    assert texts(await stream.receive(1)) == ["open"]
    return topic, subscription, stream


async def test_42_the_subscription_cannot_be_named_again(bus: Bus) -> None:
    _, subscription, stream = await _opened(bus)

    stream.send(subscription=subscription)

    with pytest.raises(InvalidArgument):
        await stream.end()


async def test_43_a_stream_on_a_missing_subscription_ends_not_found(bus: Bus) -> None:
    missing = f"{PROJECT}/subscriptions/{fresh('missing')}"

    with pytest.raises(NotFound):
        await (await StreamingPull(bus).open(missing)).end()


async def test_43_deleting_the_subscription_ends_its_streams_not_found(bus: Bus) -> None:
    _, subscription, stream = await _opened(bus)

    await bus.subscriber.delete_subscription(subscription=subscription)

    with pytest.raises(NotFound):
        await stream.end()


async def test_44_a_stream_gets_no_more_than_it_can_hold(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    stream = await StreamingPull(bus).open(subscription, max_outstanding_messages=3, max_outstanding_bytes=1_000_000)
    await bus.publish(topic, *"abcdefgh")

    received = await stream.receive(8, within=3)

    assert len(received) == (8 if bus.deviates(44) else 3)
    if not bus.google:
        stream.send(ack_ids=[received[0].ack_id, received[1].ack_id])
        assert len(await stream.receive(2)) == 2
    stream.half_close()


async def test_45_a_half_closed_stream_ends_well(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    stream = await StreamingPull(bus).open(subscription)
    await bus.publish(topic, "for the first")
    (received,) = await stream.receive(1)
    stream.send(ack_ids=[received.ack_id])

    stream.half_close()
    await stream.end()

    await bus.publish(topic, "for the next")
    assert texts(await bus.pull(subscription)) == ["for the next"]


async def test_46_a_cancelled_stream_gets_nothing_more(bus: Bus) -> None:
    topic, subscription, stream = await _opened(bus)

    stream.cancel()

    if bus.deviates(46):
        for _ in range(20):  # on a busy machine a pull may be quicker than the cancelled stream
            if not await _reaches_a_pull(bus, topic, subscription):
                return
        pytest.fail("a cancelled stream gets no more messages")
    # The cancellation takes a moment to arrive, so the first message may still be sent to the cancelled stream.
    while not await _reaches_a_pull(bus, topic, subscription):
        pass
    assert all([await _reaches_a_pull(bus, topic, subscription) for _ in range(3)])


async def _reaches_a_pull(bus: Bus, topic: str, subscription: str) -> bool:
    await bus.publish(topic, "after")
    await asyncio.sleep(0.2)  # Google's serves its streams every 50 ms, and a pull must not be quicker
    return bool(await bus.pull(subscription, within=3))


async def test_47_a_seek_forward_purges_and_a_seek_back_replays(bus: Bus) -> None:
    topic, subscription = await bus.pair(retain_acked_messages=True)
    before, after = (datetime.now(UTC) + timedelta(minutes=minutes) for minutes in (-1, 10))
    await bus.publish(topic, "a", "b")
    await bus.ack(subscription, *await bus.pull(subscription, 2))

    await bus.subscriber.seek(request=SeekRequest(subscription=subscription, time=before))
    assert sorted(texts(await bus.pull(subscription, 2))) == ["a", "b"]

    await bus.publish(topic, "c")
    await bus.subscriber.seek(request=SeekRequest(subscription=subscription, time=after))
    assert await bus.nothing(subscription)


async def test_48_a_detached_subscription_gets_nothing_more(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "dropped")

    detached = await refusal(bus.publisher.detach_subscription({"subscription": subscription}))

    if bus.deviates(48):
        assert detached is StatusCode.UNIMPLEMENTED
        return
    assert detached is None
    assert (await bus.subscriber.get_subscription(subscription=subscription)).detached
    pulled = bus.subscriber.pull(subscription=subscription, max_messages=1, retry=None)
    assert await refusal(pulled) is StatusCode.FAILED_PRECONDITION
    assert [name async for name in await bus.publisher.list_topic_subscriptions(topic=topic)] == []
