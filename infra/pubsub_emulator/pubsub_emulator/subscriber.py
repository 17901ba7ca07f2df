"""google.pubsub.v1.Subscriber."""

from __future__ import annotations

import asyncio
from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty

from pubsub_emulator import wire
from pubsub_emulator.broker import Broker
from pubsub_emulator.catalog import detached, pushed
from pubsub_emulator.errors import CallRefused, StaleAckIds, invalid
from pubsub_emulator.leases import Consumer, fill
from pubsub_emulator.policy import check_extension, check_project, complete_subscription
from pubsub_emulator.publisher import merge
from pubsub_emulator.stream import Stream
from pubsub_emulator.subscription import Subscription
from pubsub_emulator.wire import Context, Raw, page, stream, unary

_MUTABLE: Final = {
    "ack_deadline_seconds",
    "dead_letter_policy",
    "enable_exactly_once_delivery",
    "expiration_policy",
    "labels",
    "message_retention_duration",
    "push_config",
    "retain_acked_messages",
    "retry_policy",
    "tags",
}
_LONGEST_PULL: Final = 90.0
_HEAD_START: Final = 0.1
"""A pull answers, with nothing if need be, this many seconds before its caller's deadline."""


class Subscriber:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._catalog = broker.catalog

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "google.pubsub.v1.Subscriber",
            {
                "CreateSubscription": unary(self.create_subscription, wire.Subscription, wire.Subscription),
                "GetSubscription": unary(self.get_subscription, wire.GetSubscriptionRequest, wire.Subscription),
                "UpdateSubscription": unary(
                    self.update_subscription, wire.UpdateSubscriptionRequest, wire.Subscription
                ),
                "ListSubscriptions": unary(
                    self.list_subscriptions, wire.ListSubscriptionsRequest, wire.ListSubscriptionsResponse
                ),
                "DeleteSubscription": unary(self.delete_subscription, wire.DeleteSubscriptionRequest, Empty),
                "Pull": unary(self.pull, wire.PullRequest, wire.PullResponse),
                "StreamingPull": stream(self.streaming_pull, wire.StreamingPullRequest, wire.StreamingPullResponse),
                "Acknowledge": unary(self.acknowledge, wire.AcknowledgeRequest, Empty),
                "ModifyAckDeadline": unary(self.modify_ack_deadline, wire.ModifyAckDeadlineRequest, Empty),
                "ModifyPushConfig": unary(self.modify_push_config, wire.ModifyPushConfigRequest, Empty),
                "Seek": unary(self.seek, wire.SeekRequest, wire.SeekResponse),
            },
        )

    async def create_subscription(self, config: Raw, context: Context) -> Raw:
        complete_subscription(config)
        await self._catalog.create_subscription(config)
        return config

    async def get_subscription(self, request: Raw, context: Context) -> Raw:
        return self._catalog.subscription(request.subscription).config

    async def update_subscription(self, request: Raw, context: Context) -> Raw:
        subscription = self._catalog.subscription(request.subscription.name, "subscription.name")
        config = merge(request.subscription, subscription.config, request.update_mask, _MUTABLE)
        complete_subscription(config)
        await self._catalog.update_subscription(subscription, config)
        return config

    async def list_subscriptions(self, request: Raw, context: Context) -> Raw:
        check_project("project", request.project)
        inside = (name for name in self._catalog.subscriptions if name.startswith(f"{request.project}/subscriptions/"))
        names, token = page(inside, request.page_size, request.page_token)
        subscriptions = [self._catalog.subscriptions[name].config for name in names]
        return wire.ListSubscriptionsResponse(subscriptions=subscriptions, next_page_token=token)

    async def delete_subscription(self, request: Raw, context: Context) -> Empty:
        await self._catalog.delete_subscription(self._catalog.subscription(request.subscription))
        return Empty()

    async def pull(self, request: Raw, context: Context) -> Raw:
        subscription = self._pullable(request.subscription)
        if request.max_messages <= 0:
            raise invalid(f"max_messages: {request.max_messages} is not positive")
        remaining: float | None = context.time_remaining()  # None without a deadline, whatever its type says
        patience = min(_LONGEST_PULL, remaining - _HEAD_START) if remaining is not None else _LONGEST_PULL
        consumer = Consumer(subscription.config.ack_deadline_seconds, max_messages=request.max_messages)
        subscription.join(consumer)
        try:
            async with asyncio.timeout(max(patience, 0)):
                batch = await consumer.next_batch() if consumer.batch or not request.return_immediately else []
        except TimeoutError:
            batch = []
        finally:
            subscription.leave(consumer)
        response = wire.PullResponse()
        fill(response, batch, subscription.config)
        return response

    async def streaming_pull(self, requests: Raw, context: Context) -> None:
        await Stream.serve(self._broker, self._pullable, aiter(requests), context)

    async def acknowledge(self, request: Raw, context: Context) -> Empty:
        subscription = self._catalog.subscription(request.subscription)
        if not request.ack_ids:
            raise invalid("ack_ids: must not be empty")
        stored, stale = self._broker.acknowledge(subscription, request.ack_ids)
        await stored
        if stale:
            raise StaleAckIds(stale)
        return Empty()

    async def modify_ack_deadline(self, request: Raw, context: Context) -> Empty:
        subscription = self._catalog.subscription(request.subscription)
        if not request.ack_ids:
            raise invalid("ack_ids: must not be empty")
        check_extension("ack_deadline_seconds", request.ack_deadline_seconds)
        stale = subscription.modify_deadline(request.ack_ids, request.ack_deadline_seconds)
        if stale:
            raise StaleAckIds(stale)
        return Empty()

    async def modify_push_config(self, request: Raw, context: Context) -> Empty:
        subscription = self._catalog.subscription(request.subscription)
        config = wire.Subscription()
        config.CopyFrom(subscription.config)
        config.push_config.CopyFrom(request.push_config)
        complete_subscription(config)
        await self._catalog.update_subscription(subscription, config)
        return Empty()

    async def seek(self, request: Raw, context: Context) -> Raw:
        subscription = self._open(request.subscription)
        match request.WhichOneof("target"):
            case "time":
                await self._broker.seek(subscription, request.time.ToMicroseconds())
            case "snapshot":
                raise CallRefused(grpc.StatusCode.UNIMPLEMENTED, "snapshot: this emulator seeks by time only")
            case _:
                raise invalid("target: either time or snapshot must be set")
        return wire.SeekResponse()

    def _pullable(self, name: str) -> Subscription:
        subscription = self._open(name)
        if subscription.config.push_config.push_endpoint:
            raise pushed(subscription)
        return subscription

    def _open(self, name: str) -> Subscription:
        """A subscription that is not detached."""
        subscription = self._catalog.subscription(name)
        if subscription.config.detached:
            raise detached(subscription)
        return subscription
