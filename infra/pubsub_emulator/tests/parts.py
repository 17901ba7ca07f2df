"""A bus as its clients see it, and the deviations of Google's emulator from the documented service."""

import asyncio
import itertools
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Any, Self

import pytest
from google.api_core.exceptions import DeadlineExceeded, GoogleAPICallError
from google.pubsub_v1 import PublisherAsyncClient, SubscriberAsyncClient
from google.pubsub_v1.types import (
    PubsubMessage,
    ReceivedMessage,
    StreamingPullRequest,
    StreamingPullResponse,
    Subscription,
)
from grpc import StatusCode

GOOGLE_DEVIATES = {
    4: "labels of a topic cannot be updated",
    10: "an ack deadline of 5 s is accepted",
    11: "31 days of retention are refused",
    19: "attribute limits are ignored",
    20: "a publish over 10 MB is never answered, or with an internal error",
    33: "an extension of 601 s is accepted",
    36: "the first retry after a nack is immediate",
    38: "after a nack the key is not replayed from there",
    40: "filters are ignored",
    41: "a filter that cannot be read is accepted",
    44: "limits of a stream are ignored",
    46: "a cancelled stream is served on, so messages wait for its deadline",
    48: "subscriptions cannot be detached",
}
"""By the number of the contract case. Every entry is asserted by the test of its number, which fails once Google fixes it."""

PROJECT = "projects/contract"
_numbers = itertools.count()


class Bus:
    """Wraps the real client; topics and subscriptions get fresh names."""

    def __init__(self, target: str, google: bool) -> None:
        """PUBSUB_EMULATOR_HOST must name the target, and the loop must run."""
        self.target, self.google = target, google
        self.publisher, self.subscriber = PublisherAsyncClient(), SubscriberAsyncClient()

    async def close(self) -> None:
        for client in (self.publisher, self.subscriber):
            await client.transport.close()  # type: ignore[no-untyped-call]

    def deviates(self, case: int) -> bool:
        return self.google and case in GOOGLE_DEVIATES

    async def topic(self, **fields: Any) -> str:
        name = f"{PROJECT}/topics/{fresh('topic')}"
        await self.publisher.create_topic(request={"name": name, **fields})
        return name

    async def subscription(self, topic: str, **fields: Any) -> str:
        return (await self.subscribe(topic, **fields)).name

    async def subscribe(self, topic: str, **fields: Any) -> Subscription:
        name = f"{PROJECT}/subscriptions/{fresh('subscription')}"
        return await self.subscriber.create_subscription(request={"name": name, "topic": topic, **fields})

    async def pair(self, **fields: Any) -> tuple[str, str]:
        """A topic and a subscription on it."""
        topic = await self.topic()
        return topic, await self.subscription(topic, **fields)

    async def leased(self, **fields: Any) -> tuple[str, ReceivedMessage]:
        """A new subscription and the one message that was pulled from it."""
        topic, subscription = await self.pair(**fields)
        await self.publish(topic, "x")
        (received,) = await self.pull(subscription)
        return subscription, received

    async def publish(self, topic: str, *data: str, **fields: Any) -> list[str]:
        messages = [PubsubMessage(data=text.encode(), **fields) for text in data]
        response = await self.publisher.publish(topic=topic, messages=messages, retry=None, timeout=60)
        return list(response.message_ids)

    async def pull(self, subscription: str, count: int = 1, within: float = 60) -> list[ReceivedMessage]:
        """Up to `count` messages; fewer only when no more came in time."""
        received: list[ReceivedMessage] = []
        deadline = time.monotonic() + within
        while len(received) < count and (left := deadline - time.monotonic()) > 0.2:
            request = {"subscription": subscription, "max_messages": count - len(received)}
            try:
                received += (await self.subscriber.pull(request, timeout=left, retry=None)).received_messages
            except DeadlineExceeded:
                break
        return received

    async def nothing(self, subscription: str, within: float = 0.6) -> bool:
        return not await self.pull(subscription, within=within)

    async def ack(self, subscription: str, *received: ReceivedMessage) -> None:
        ack_ids = [one.ack_id for one in received]
        await self.subscriber.acknowledge(subscription=subscription, ack_ids=ack_ids, retry=None)

    async def extend(self, subscription: str, seconds: int, *received: ReceivedMessage) -> None:
        request = {"subscription": subscription, "ack_deadline_seconds": seconds}
        request["ack_ids"] = [one.ack_id for one in received]
        await self.subscriber.modify_ack_deadline(request, retry=None)

    async def nack(self, subscription: str, *received: ReceivedMessage) -> None:
        await self.extend(subscription, 0, *received)


@asynccontextmanager
async def connected(target: str, monkeypatch: pytest.MonkeyPatch, google: bool = False) -> AsyncIterator[Bus]:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", target)
    bus = Bus(target, google)
    try:
        yield bus
    finally:
        await bus.close()
        await asyncio.sleep(0)  # lets the closed channels' callbacks run in this loop


class StreamingPull:
    """A streaming pull whose requests are sent one by one. What comes back waits in a queue until it is asked for."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        self._requests: asyncio.Queue[StreamingPullRequest | None] = asyncio.Queue()
        self._responses: asyncio.Queue[StreamingPullResponse] = asyncio.Queue()
        self._reader: asyncio.Task[None] | None = None

    async def open(self, subscription: str, ack_deadline: int = 60, **fields: Any) -> Self:
        self.send(subscription=subscription, stream_ack_deadline_seconds=ack_deadline, **fields)
        call = await self._bus.subscriber.streaming_pull(requests=self._outgoing(), timeout=600)
        self._reader = asyncio.create_task(self._read(call))
        return self

    async def _read(self, call: Any) -> None:
        async for response in call:
            self._responses.put_nowait(response)

    async def _outgoing(self) -> AsyncIterator[StreamingPullRequest]:
        while (request := await self._requests.get()) is not None:  # an empty request is falsy
            yield request

    def send(self, **fields: Any) -> None:
        self._requests.put_nowait(StreamingPullRequest(**fields))

    def half_close(self) -> None:
        self._requests.put_nowait(None)

    def cancel(self) -> None:
        assert self._reader
        self._reader.cancel()

    async def receive(self, count: int, within: float = 60) -> list[ReceivedMessage]:
        """Up to `count` messages; fewer only when no more came in time."""
        received: list[ReceivedMessage] = []
        with suppress(TimeoutError):
            async with asyncio.timeout(within):
                while len(received) < count:
                    received += (await self._responses.get()).received_messages
        return received

    async def response(self) -> StreamingPullResponse:
        async with asyncio.timeout(60):
            return await self._responses.get()

    async def end(self) -> None:
        """Raises the status that the stream ends with, unless that is OK."""
        assert self._reader
        async with asyncio.timeout(60):
            await self._reader


def fresh(kind: str) -> str:
    return f"{kind}-{time.time_ns()}-{next(_numbers)}"


def texts(received: list[ReceivedMessage]) -> list[str]:
    return [one.message.data.decode() for one in received]


async def refusal(call: Awaitable[Any]) -> StatusCode | None:
    """The status with which a call is refused; None if it is not."""
    try:
        await call
    except GoogleAPICallError as error:
        code: StatusCode | None = error.grpc_status_code
        return code
    return None


async def until(condition: Callable[[], bool], within: float = 60) -> None:
    async with asyncio.timeout(within):
        while not condition():  # noqa: ASYNC110 (what it waits for has no event)
            await asyncio.sleep(0.01)
