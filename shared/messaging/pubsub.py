"""The adapter for Google Pub/Sub, and the only module that imports Google's client.

It uses the transports of the async clients with raw protobuf messages, because the proto-plus wrappers cost more than the calls
themselves. With PUBSUB_EMULATOR_HOST set it connects to an emulator, otherwise to the real service with default credentials.
Create it inside the running event loop.

How a silent bus is noticed:
- A call that is not answered fails after `timeout` (10 s).
- A stream writes a heartbeat every `heartbeat` (25 s), and breaks if the bus has not answered by the next one. Google's emulator
  answers from version 0.8.32 on; a bus that has never answered one is not expected to.
- A connection on which nothing is acknowledged for 20 s is closed by the operating system. Heartbeats and calls see to it that
  something is sent.
- As the last resort gRPC pings every `keepalive` (330 s) while a call or a stream is open. A gRPC server closes the connection of
  a client that pings more often than every 300 s while the server sends no data; Google's emulator is such a server.

A closed connection is made again at once, and then at least every second.
"""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import grpc
import grpc.aio
from google.pubsub_v1.services.publisher.transports import PublisherGrpcAsyncIOTransport
from google.pubsub_v1.services.subscriber.transports import SubscriberGrpcAsyncIOTransport
from google.pubsub_v1.types import pubsub as types

from messaging import metrics
from messaging.backoff import wait
from messaging.bus import Message, Outgoing
from messaging.errors import BusError, BusUnavailable, PublishRejected, SubscriptionPushed, TopicUnusable

_PublishRequest = types.PublishRequest.pb()
_PublishResponse = types.PublishResponse.pb()
_StreamingPullRequest = types.StreamingPullRequest.pb()
_PullRequest = types.PullRequest.pb()
_AcknowledgeRequest = types.AcknowledgeRequest.pb()
_ModifyAckDeadlineRequest = types.ModifyAckDeadlineRequest.pb()

# The bus refused the message itself, or its topic. All other codes are transient: quota, overload, a restart, a topic's leader
# moving.
_REJECTED = {
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.OUT_OF_RANGE,
    grpc.StatusCode.UNIMPLEMENTED,
}
_TOPIC_UNUSABLE = {grpc.StatusCode.NOT_FOUND, grpc.StatusCode.PERMISSION_DENIED}

MAX_CALL_BYTES = 9_000_000  # the service takes 10 MB a call, and 1,000 messages
MESSAGES_PER_CALL = 1000
ACK_IDS_PER_CALL = 1000
KEEPALIVE_SECONDS = 330.0
HEARTBEAT_SECONDS = 25.0
RECONNECT_SECONDS = 3.0  # how long a stream, or a call whose connection was closed, waits for a new one
PROTOCOL_VERSION = 1  # of a stream: the bus answers heartbeats


@dataclass(slots=True)
class _Pulse:
    """The heartbeats of one stream: whether one was written, and whether the bus has sent anything since."""

    asked: bool = False
    heard: bool = False
    lost: bool = False


class PubSub:
    """A client of the bus. In seconds: `timeout` of a call, `heartbeat` of a stream, `keepalive` between gRPC's pings."""

    def __init__(
        self,
        project: str,
        *,
        timeout: float = 10.0,
        heartbeat: float = HEARTBEAT_SECONDS,
        keepalive: float = KEEPALIVE_SECONDS,
    ) -> None:
        self._project, self._timeout, self._heartbeat = project, timeout, heartbeat
        self.answers_heartbeats = False  # until it has answered one
        options = [
            ("grpc.max_receive_message_length", -1),
            ("grpc.keepalive_time_ms", int(keepalive * 1000)),
            ("grpc.keepalive_timeout_ms", 20_000),
            ("grpc.initial_reconnect_backoff_ms", 100),
            ("grpc.max_reconnect_backoff_ms", 1_000),
            ("grpc.min_reconnect_backoff_ms", 5_000),  # also the time limit of an attempt to connect
            ("grpc.dns_min_time_between_resolutions_ms", 1_000),  # a container may come back with another address
        ]
        if emulator := os.environ.get("PUBSUB_EMULATOR_HOST"):
            self._channel: Any = grpc.aio.insecure_channel(emulator, options=options)
        else:
            self._channel = PublisherGrpcAsyncIOTransport.create_channel(options=options)
        self._publisher: Any = PublisherGrpcAsyncIOTransport(channel=self._channel)
        self._publish: Any = self._channel.unary_unary(
            "/google.pubsub.v1.Publisher/Publish",
            request_serializer=_PublishRequest.SerializeToString,
            response_deserializer=_PublishResponse.FromString,
        )
        self._subscriber: Any = SubscriberGrpcAsyncIOTransport(channel=self._channel)

    async def close(self) -> None:
        await self._channel.close()

    def topic_path(self, topic: str) -> str:
        return f"projects/{self._project}/topics/{topic}"

    def subscription_path(self, subscription: str) -> str:
        return f"projects/{self._project}/subscriptions/{subscription}"

    async def ping(self, topic: str) -> None:
        """Raises `BusUnavailable` unless the bus answers and has this topic."""
        try:
            await self._publisher.get_topic(types.GetTopicRequest.pb()(topic=self.topic_path(topic)), timeout=5)
        except grpc.aio.AioRpcError as error:
            raise BusUnavailable(_describe(error)) from None

    async def require_topics(self, topics: Iterable[str]) -> None:
        """Raises `BusUnavailable` unless the bus answers and has all topics. One that we may not read counts as present: the
        right to publish to a topic does not include the right to read it.
        """
        missing = list[str]()
        for topic in topics:
            request = types.GetTopicRequest.pb()(topic=self.topic_path(topic))
            try:
                await self._unary(self._publisher.get_topic, request, 5)
            except grpc.aio.AioRpcError as error:
                if error.code() is grpc.StatusCode.NOT_FOUND:
                    missing.append(topic)
                elif error.code() is not grpc.StatusCode.PERMISSION_DENIED:
                    raise BusUnavailable(_describe(error)) from None
        if missing:
            raise BusUnavailable(
                f"no topic {', '.join(missing)}: declare it in infra/topology.toml, then run `fern topology apply`"
            )

    @metrics.timed("publish")
    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        """Publish in one call, or in several if the messages exceed the limits of one, and return the bus's ids.

        After an error some of the messages may have been published; a retry publishes them again.
        """
        message_ids = list[str]()
        for start in range(0, len(messages), MESSAGES_PER_CALL):
            message_ids += await self._publish_part(topic, messages[start : start + MESSAGES_PER_CALL])
        return message_ids

    async def _publish_part(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        request = _PublishRequest(topic=self.topic_path(topic))
        for data, attributes in messages:
            message = request.messages.add()
            message.data = data
            message.attributes.update(attributes)
        if len(messages) > 1 and request.ByteSize() > MAX_CALL_BYTES:
            first, second = messages[: len(messages) // 2], messages[len(messages) // 2 :]
            return await self._publish_part(topic, first) + await self._publish_part(topic, second)
        try:
            answer = await self._unary(self._publish, request, self._timeout)
            return list(answer.message_ids)
        except grpc.aio.AioRpcError as error:
            raise _publish_error(error) from None

    async def pull(self, subscription: str, limit: int, *, wait: float) -> list[Message]:
        """Return messages that wait or arrive within `wait` seconds. Raises `SubscriptionPushed` if the bus pushes them."""
        request = _PullRequest(subscription=self.subscription_path(subscription), max_messages=limit)
        try:
            answer = await self._unary(self._subscriber.pull, request, wait)
        except grpc.aio.AioRpcError as error:
            if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
                return []
            raise _not_pulled(error) from None
        return _messages(subscription, answer)

    async def stream(
        self, subscription: str, *, outstanding: int, ack_deadline: int, stop: asyncio.Event
    ) -> AsyncIterator[list[Message]]:
        """Yield batches as the bus sends them. On `stop` the stream is half-closed, so that the bus stops sending and ends it.
        Raises `BusUnavailable` if the stream breaks, `SubscriptionPushed` if the bus pushes its messages.
        """
        try:
            async with asyncio.timeout(RECONNECT_SECONDS):
                await self._channel.channel_ready()  # a refusal of the stream then arrives at once
        except TimeoutError:
            raise BusUnavailable(f"no connection to the bus within {RECONNECT_SECONDS:g} s") from None
        call, pulse = self._subscriber.streaming_pull(), _Pulse()
        closing = asyncio.create_task(self._keep_open(call, pulse, subscription, outstanding, ack_deadline, stop))
        try:
            while (answer := await call.read()) is not grpc.aio.EOF:
                pulse.heard = True
                if messages := _messages(subscription, answer):
                    yield messages
                elif pulse.asked:
                    self.answers_heartbeats = True
            if (code := await call.code()) is not grpc.StatusCode.OK:
                raise BusUnavailable(f"{code.name}: {await call.details()}")
        except grpc.aio.AioRpcError as error:
            raise _not_pulled(error) from None
        except asyncio.CancelledError:
            if not pulse.lost:
                raise
            raise BusUnavailable(f"no answer to a heartbeat for {self._heartbeat:g} s") from None
        finally:
            closing.cancel()
            call.cancel()

    async def _keep_open(
        self, call: Any, pulse: _Pulse, subscription: str, outstanding: int, ack_deadline: int, stop: asyncio.Event
    ) -> None:
        await call.write(
            _StreamingPullRequest(
                subscription=self.subscription_path(subscription),
                stream_ack_deadline_seconds=ack_deadline,
                max_outstanding_messages=outstanding,
                max_outstanding_bytes=100_000_000,
                protocol_version=PROTOCOL_VERSION,
            )
        )
        while not await wait(stop, self._heartbeat):
            if self.answers_heartbeats and pulse.asked and not pulse.heard:
                pulse.lost = True
                call.cancel()
                return
            pulse.asked, pulse.heard = True, False
            await call.write(_StreamingPullRequest())
        await call.done_writing()

    @metrics.timed("ack")
    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None:
        """A failed acknowledgement causes a redelivery, which the claim deduplicates."""
        for part in _chunks(ack_ids):
            request = _AcknowledgeRequest(subscription=self.subscription_path(subscription), ack_ids=part)
            await self._call(self._subscriber.acknowledge, request)

    @metrics.timed("modify_deadline")
    async def modify_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """Zero seconds is a nack."""
        for part in _chunks(ack_ids):
            request = _ModifyAckDeadlineRequest(
                subscription=self.subscription_path(subscription), ack_ids=part, ack_deadline_seconds=seconds
            )
            await self._call(self._subscriber.modify_ack_deadline, request)

    async def _call(self, method: Any, request: Any) -> None:
        try:
            await self._unary(method, request, self._timeout)
        except grpc.aio.AioRpcError as error:
            raise BusUnavailable(_describe(error)) from None

    async def _unary(self, method: Any, request: Any, timeout: float) -> Any:
        """Call, and call once more if the connection was closed, as soon as there is a new one. All our calls may be repeated."""
        try:
            return await method(request, timeout=timeout)
        except grpc.aio.AioRpcError as error:
            if error.code() is not grpc.StatusCode.UNAVAILABLE:
                raise
            closed = error
        try:
            return await method(request, timeout=RECONNECT_SECONDS, wait_for_ready=True)
        except grpc.aio.AioRpcError as error:
            raise closed if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED else error from None


def _publish_error(error: grpc.aio.AioRpcError) -> BusError:
    if error.code() in _TOPIC_UNUSABLE:
        return TopicUnusable(_describe(error))
    return (PublishRejected if error.code() in _REJECTED else BusUnavailable)(_describe(error))


def _messages(subscription: str, answer: Any) -> list[Message]:
    return [
        Message(
            subscription,
            received.ack_id,
            received.message.message_id,
            received.message.data,
            dict(received.message.attributes),
            received.delivery_attempt,
            received.message.publish_time.seconds + received.message.publish_time.nanos / 1e9,
        )
        for received in answer._pb.received_messages
    ]


def _chunks(ack_ids: Sequence[str]) -> Iterable[Sequence[str]]:
    return (ack_ids[start : start + ACK_IDS_PER_CALL] for start in range(0, len(ack_ids), ACK_IDS_PER_CALL))


def _not_pulled(error: grpc.aio.AioRpcError) -> BusUnavailable:
    pushed = error.code() is grpc.StatusCode.FAILED_PRECONDITION
    return (SubscriptionPushed if pushed else BusUnavailable)(_describe(error))


def _describe(error: grpc.aio.AioRpcError) -> str:
    return f"{error.code().name}: {error.details()}"
