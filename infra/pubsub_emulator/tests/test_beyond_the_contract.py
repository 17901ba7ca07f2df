"""The contract is complete; and what it does not number: confirmations and pings, keys side by side, the threaded client."""

import asyncio
import queue
import re
import time
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.api_core.exceptions import InvalidArgument
from google.cloud import pubsub_v1
from google.cloud.pubsub_v1.subscriber.exceptions import AcknowledgeStatus
from google.cloud.pubsub_v1.subscriber.message import Message
from google.pubsub_v1.types import PubsubMessage, PullRequest, StreamingPullResponse
from grpc import StatusCode

from pubsub_emulator import wire
from pubsub_emulator.server import Running

from .parts import GOOGLE_DEVIATES, Bus, StreamingPull, refusal, texts

HERE = Path(__file__).parent


def test_every_one_of_the_48_cases_has_a_test() -> None:
    names = re.findall(r"^async def test((?:_\d\d)+)_", _sources(), re.MULTILINE)

    numbers = {int(number) for name in names for number in name.strip("_").split("_")}

    assert numbers == set(range(1, 49))


def test_every_deviation_of_googles_is_asserted_and_no_other() -> None:
    asserted = {int(number) for number in re.findall(r"bus\.deviates\((\d+)\)", _sources())}

    assert asserted == set(GOOGLE_DEVIATES)


def _sources() -> str:
    return "\n".join(path.read_text() for path in HERE.glob("test_contract_*.py"))


async def test_an_unknown_method_is_unimplemented(emulator: Running) -> None:
    async with grpc.aio.insecure_channel(emulator.target) as channel:
        call = channel.unary_unary("/google.pubsub.v1.SchemaService/ListSchemas", bytes, bytes)
        with pytest.raises(grpc.aio.AioRpcError) as refused:
            await call(b"")

    assert refused.value.code() is StatusCode.UNIMPLEMENTED


@pytest.mark.filterwarnings("ignore:The return_immediately flag is deprecated")
async def test_a_pull_that_must_not_wait_takes_what_is_there(ours: Bus) -> None:
    topic, subscription = await ours.pair()
    request = PullRequest(subscription=subscription, max_messages=5, return_immediately=True)

    empty = await ours.subscriber.pull(request=request)
    await ours.publish(topic, "there")
    full = await ours.subscriber.pull(request=request)

    assert list(empty.received_messages) == []
    assert texts(list(full.received_messages)) == ["there"]


async def test_a_stream_confirms_acks_and_extensions_with_exactly_once(ours: Bus) -> None:
    topic, subscription = await ours.pair(enable_exactly_once_delivery=True)
    stream = await StreamingPull(ours).open(subscription)
    await ours.publish(topic, "a", "b")
    first, second = await stream.receive(2)

    stream.send(modify_deadline_ack_ids=[second.ack_id], modify_deadline_seconds=[0])
    nacked = await stream.response()
    (again,) = await stream.receive(1)
    stream.send(ack_ids=[first.ack_id, second.ack_id])
    acked = await stream.response()
    stream.half_close()
    await stream.end()

    assert nacked.subscription_properties.exactly_once_delivery_enabled
    assert list(nacked.modify_ack_deadline_confirmation.ack_ids) == [second.ack_id]
    assert again.message == second.message
    assert list(acked.acknowledge_confirmation.ack_ids) == [first.ack_id]
    assert list(acked.acknowledge_confirmation.invalid_ack_ids) == [second.ack_id]


async def test_a_keepalive_ping_is_answered(ours: Bus) -> None:
    _, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription, protocol_version=1)

    stream.send()

    pong = await stream.response()
    assert isinstance(pong, StreamingPullResponse)
    assert not pong.received_messages
    stream.half_close()


@pytest.mark.parametrize("field", [{"client_id": "b"}, {"max_outstanding_messages": 4}, {"max_outstanding_bytes": 4}])
async def test_what_only_the_first_request_may_set_is_refused_later(ours: Bus, field: dict[str, Any]) -> None:
    _, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription)

    stream.send(**field)

    with pytest.raises(InvalidArgument):
        await stream.end()


async def test_a_message_larger_than_a_streams_whole_allowance_still_gets_through(ours: Bus) -> None:
    topic, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription, max_outstanding_bytes=1000)

    await ours.publish(topic, "x" * 5000, "y" * 5000)

    (first,) = await stream.receive(2, within=3)
    stream.send(ack_ids=[first.ack_id])
    assert len(await stream.receive(1)) == 1
    stream.half_close()


async def test_streams_share_what_there_is(ours: Bus) -> None:
    topic, subscription = await ours.pair()
    one, two = [await StreamingPull(ours).open(subscription, max_outstanding_messages=5) for _ in range(2)]

    await ours.publish(topic, *[str(number) for number in range(10)])

    received = [*await one.receive(5), *await two.receive(5)]
    assert sorted(texts(received), key=int) == [str(number) for number in range(10)]
    one.half_close()
    two.half_close()


async def test_one_key_does_not_wait_for_another(ours: Bus) -> None:
    topic, subscription = await ours.pair(enable_message_ordering=True)
    await ours.publish(topic, "ada 1", "ada 2", ordering_key="ada")
    await ours.publish(topic, "eve 1", "eve 2", ordering_key="eve")
    await ours.publish(topic, "without a key")

    (ada,) = await ours.pull(subscription, 1)
    others = await ours.pull(subscription, 5, within=3)

    assert texts([ada]) == ["ada 1"]
    assert texts(others) == ["eve 1", "eve 2", "without a key"]


async def test_a_dead_letter_lets_its_key_go_on(ours: Bus) -> None:
    topic, dead = await ours.topic(), await ours.topic()
    morgue = await ours.subscription(dead)
    policy = {"dead_letter_topic": dead}
    subscription = await ours.subscription(topic, enable_message_ordering=True, dead_letter_policy=policy)
    await ours.publish(topic, "poison", "cure", ordering_key="ada")

    for _ in range(5):
        await ours.nack(subscription, *await ours.pull(subscription, 1))

    assert texts(await ours.pull(subscription)) == ["cure"]
    (letter,) = await ours.pull(morgue)
    assert (letter.message.data, letter.message.ordering_key) == (b"poison", "ada")


async def test_a_request_has_one_ordering_key(ours: Bus) -> None:
    topic = await ours.topic()
    messages = [PubsubMessage(data=b"x", ordering_key="ada"), PubsubMessage(data=b"y", ordering_key="eve")]

    refused = await refusal(ours.publisher.publish(topic=topic, messages=messages, retry=None))

    assert refused is StatusCode.INVALID_ARGUMENT


async def test_a_message_of_almost_ten_megabytes_is_delivered(emulator: Running, ours: Bus) -> None:
    topic, subscription = await ours.pair()
    data = b"x" * 9_900_000

    await ours.publisher.publish(topic=topic, messages=[PubsubMessage(data=data)], timeout=30)

    options = [("grpc.max_receive_message_length", -1)]
    async with grpc.aio.insecure_channel(emulator.target, options=options) as channel:
        encode, decode = wire.PullRequest.SerializeToString, wire.PullResponse.FromString
        pull = channel.unary_unary("/google.pubsub.v1.Subscriber/Pull", encode, decode)
        response: Any = await pull(wire.PullRequest(subscription=subscription, max_messages=10))
    assert response.received_messages[0].message.data == data


async def test_idle_delivery_takes_single_digit_milliseconds(ours: Bus) -> None:
    topic, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription)
    await ours.publish(topic, "warm")
    await stream.receive(1)

    quickest, deadline = 1.0, time.monotonic() + 60
    while quickest >= 0.010 and time.monotonic() < deadline:
        begun = time.perf_counter()
        publishing = asyncio.create_task(ours.publish(topic, "quick"))
        await stream.receive(1)
        quickest = min(quickest, time.perf_counter() - begun)
        await publishing
    stream.half_close()

    # The quickest of as many as a minute has, because how busy the machine is must not decide.
    assert quickest < 0.010


def test_the_threaded_client_publishes_in_order_and_hears_that_its_acks_arrived(
    emulator_process: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator_process)
    topic, subscription = "projects/contract/topics/threaded", "projects/contract/subscriptions/threaded"
    in_order = pubsub_v1.types.PublisherOptions(enable_message_ordering=True)
    publisher, subscriber = pubsub_v1.PublisherClient(publisher_options=in_order), pubsub_v1.SubscriberClient()
    publisher.create_topic(name=topic)
    options = {"enable_message_ordering": True, "enable_exactly_once_delivery": True}
    subscriber.create_subscription({"name": subscription, "topic": topic, **options})
    acks: queue.Queue[tuple[bytes, Future[AcknowledgeStatus]]] = queue.Queue()

    def handle(message: Message) -> None:
        acks.put((message.data, message.ack_with_response()))

    pulling = subscriber.subscribe(subscription, handle)
    for number in range(20):
        publisher.publish(topic, str(number).encode(), ordering_key="ada").result(60)
    received = [acks.get(timeout=60) for _ in range(20)]

    assert [data for data, _ in received] == [str(number).encode() for number in range(20)]
    assert {ack.result(60) for _, ack in received} == {AcknowledgeStatus.SUCCESS}
    pulling.cancel()
    pulling.result(60)
    subscriber.close()
    publisher.stop()
