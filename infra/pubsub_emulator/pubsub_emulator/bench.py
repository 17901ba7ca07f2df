"""`pubsub-emulator bench`: ours against Google's emulator, interleaved in one run.

Three measures, each with the real messages and raw gRPC, so that the client costs as little as possible:

    publish   500 messages of 200 bytes a call, eight calls in flight        messages a second
    stream    one streaming pull of 4,000 that were just published, acked    messages a second
    latency   one message at a time on an idle emulator, publish → delivery  milliseconds, median

The rounds alternate between the two emulators and the ratio is the median of the rounds' ratios, because on a shared machine the
numbers of one minute cannot be held against those of the next.
"""

from __future__ import annotations

import asyncio
import itertools
import statistics
import tempfile
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import click
import grpc.aio

from pubsub_emulator import google, wire
from pubsub_emulator.server import started

_BATCH: Final = 500
_IN_FLIGHT: Final = 8
_PAYLOAD: Final = b"x" * 200
_STREAMED: Final = 4000
"""Messages that are streamed, of all that were published: at Google's 2,000 a second, all would take most of the run."""
_CHANNEL: Final = [("grpc.max_receive_message_length", -1)]
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Round:
    publish: float
    stream: float
    latency: float


class BenchClient:
    """The few calls of the benchmark, without the client library on top."""

    def __init__(self, channel: grpc.aio.Channel) -> None:
        def unary(service: str, method: str, request: Any, response: Any) -> Any:
            path = f"/google.pubsub.v1.{service}/{method}"
            return channel.unary_unary(path, request.SerializeToString, response.FromString)

        self.create_topic = unary("Publisher", "CreateTopic", wire.Topic, wire.Topic)
        self.publish = unary("Publisher", "Publish", wire.PublishRequest, wire.PublishResponse)
        self.create_subscription = unary("Subscriber", "CreateSubscription", wire.Subscription, wire.Subscription)
        self.streaming_pull = channel.stream_stream(
            "/google.pubsub.v1.Subscriber/StreamingPull",
            wire.StreamingPullRequest.SerializeToString,
            wire.StreamingPullResponse.FromString,
        )

    async def create(self, kind: str) -> tuple[str, str]:
        number = next(_numbers)
        topic, subscription = f"projects/bench/topics/{kind}-{number}", f"projects/bench/subscriptions/{kind}-{number}"
        await self.create_topic(wire.Topic(name=topic))
        await self.create_subscription(wire.Subscription(name=subscription, topic=topic, ack_deadline_seconds=600))
        return topic, subscription


async def measure(target: str, messages: int, singles: int) -> Round:
    async with grpc.aio.insecure_channel(target, options=_CHANNEL) as channel:
        client = BenchClient(channel)
        topic, subscription = await client.create("throughput")
        started = time.perf_counter()
        request = wire.PublishRequest(topic=topic, messages=[wire.PubsubMessage(data=_PAYLOAD)] * _BATCH)
        calls = iter(range(messages // _BATCH))
        await asyncio.gather(*[_publish(client, request, calls) for _ in range(_IN_FLIGHT)])
        published = time.perf_counter()

        stream = _Stream(client, subscription)
        await stream.receive(_STREAMED)
        received = time.perf_counter()
        stream.close()

        topic, subscription = await client.create("latency")
        stream = _Stream(client, subscription)
        one = wire.PublishRequest(topic=topic, messages=[wire.PubsubMessage(data=_PAYLOAD)])
        latencies = []
        for _ in range(singles):
            begun = time.perf_counter()
            publishing = asyncio.ensure_future(client.publish(one))
            await stream.receive(1)
            latencies.append(time.perf_counter() - begun)
            await publishing
        stream.close()
        return Round(
            publish=messages / (published - started),
            stream=_STREAMED / (received - published),
            latency=statistics.median(latencies) * 1000,
        )


async def _publish(client: BenchClient, request: Any, calls: Iterator[int]) -> None:
    for _ in calls:
        await client.publish(request)


class _Stream:
    """One streaming pull that acks what it receives."""

    def __init__(self, client: BenchClient, subscription: str) -> None:
        self._requests: asyncio.Queue[Any] = asyncio.Queue()
        self._requests.put_nowait(wire.StreamingPullRequest(subscription=subscription, stream_ack_deadline_seconds=600))
        self._call = client.streaming_pull(self._send())

    async def _send(self) -> AsyncIterator[Any]:
        while request := await self._requests.get():
            yield request

    async def receive(self, count: int) -> None:
        while count > 0:
            response: Any = await self._call.read()
            ack_ids = [received.ack_id for received in response.received_messages]
            if ack_ids:
                self._requests.put_nowait(wire.StreamingPullRequest(ack_ids=ack_ids))
            count -= len(ack_ids)

    def close(self) -> None:
        self._requests.put_nowait(None)


async def compare(ours: str, googles: str, rounds: int, messages: int, singles: int) -> None:
    pairs = []
    for number in range(1, rounds + 1):
        pair = await measure(ours, messages, singles), await measure(googles, messages, singles)
        pairs.append(pair)
        for name, result in zip(("ours", "google's"), pair, strict=True):
            click.echo(
                f"round {number}/{rounds}  {name:<9} publish {result.publish:>8,.0f}/s   stream {result.stream:>8,.0f}/s"
                f"   latency {result.latency:>6.1f} ms"
            )
    for measure_name in ("publish", "stream", "latency"):
        ratio = statistics.median(getattr(mine, measure_name) / getattr(other, measure_name) for mine, other in pairs)
        click.echo(f"{measure_name:<8} ours / google's = {ratio:.2f}")


def run(jar: Path, rounds: int, messages: int, singles: int) -> None:
    """Compare both emulators. Ours runs as a process of its own, on a temporary folder."""
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        ours = stack.enter_context(started(Path(folder))).target
        googles = stack.enter_context(google.running(jar))
        click.echo(f"{jar.name} against ours, {messages:,} messages of {len(_PAYLOAD)} bytes a round")
        asyncio.run(compare(ours, googles, rounds, messages, singles))
