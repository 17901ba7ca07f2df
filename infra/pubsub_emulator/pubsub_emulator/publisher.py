"""google.pubsub.v1.Publisher."""

from __future__ import annotations

from typing import Final

import grpc
from google.protobuf.empty_pb2 import Empty
from google.protobuf.field_mask_pb2 import FieldMask

from pubsub_emulator import wire
from pubsub_emulator.broker import Broker
from pubsub_emulator.errors import CallRefused, invalid
from pubsub_emulator.policy import check_project, check_publish, check_publish_size, check_topic
from pubsub_emulator.wire import Context, Raw, page, unary

_MUTABLE: Final = {"labels", "message_retention_duration", "message_storage_policy", "kms_key_name", "tags"}


class Publisher:
    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._catalog = broker.catalog

    def handler(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            "google.pubsub.v1.Publisher",
            {
                "CreateTopic": unary(self.create_topic, wire.Topic, wire.Topic),
                "UpdateTopic": unary(self.update_topic, wire.UpdateTopicRequest, wire.Topic),
                "GetTopic": unary(self.get_topic, wire.GetTopicRequest, wire.Topic),
                "ListTopics": unary(self.list_topics, wire.ListTopicsRequest, wire.ListTopicsResponse),
                "ListTopicSubscriptions": unary(
                    self.list_subscriptions, wire.ListTopicSubscriptionsRequest, wire.ListTopicSubscriptionsResponse
                ),
                "DeleteTopic": unary(self.delete_topic, wire.DeleteTopicRequest, Empty),
                "DetachSubscription": unary(
                    self.detach_subscription, wire.DetachSubscriptionRequest, wire.DetachSubscriptionResponse
                ),
                "Publish": unary(self.publish, bytes, wire.PublishResponse),
            },
        )

    async def create_topic(self, topic: Raw, context: Context) -> Raw:
        check_topic(topic)
        await self._catalog.create_topic(topic)
        return topic

    async def update_topic(self, request: Raw, context: Context) -> Raw:
        topic = self._catalog.topic(request.topic.name, "topic.name")
        topic.config = merge(request.topic, topic.config, request.update_mask, _MUTABLE)
        check_topic(topic.config)
        await self._catalog.save_topic(topic)
        return topic.config

    async def get_topic(self, request: Raw, context: Context) -> Raw:
        return self._catalog.topic(request.topic).config

    async def list_topics(self, request: Raw, context: Context) -> Raw:
        check_project("project", request.project)
        inside = (name for name in self._catalog.topics if name.startswith(f"{request.project}/topics/"))
        names, token = page(inside, request.page_size, request.page_token)
        topics = [self._catalog.topics[name].config for name in names]
        return wire.ListTopicsResponse(topics=topics, next_page_token=token)

    async def list_subscriptions(self, request: Raw, context: Context) -> Raw:
        attached = [subscription.name for subscription in self._catalog.topic(request.topic).subscriptions]
        names, token = page(attached, request.page_size, request.page_token)
        return wire.ListTopicSubscriptionsResponse(subscriptions=names, next_page_token=token)

    async def delete_topic(self, request: Raw, context: Context) -> Empty:
        await self._catalog.delete_topic(self._catalog.topic(request.topic))
        return Empty()

    async def detach_subscription(self, request: Raw, context: Context) -> Raw:
        await self._catalog.detach(self._catalog.subscription(request.subscription))
        return wire.DetachSubscriptionResponse()

    async def publish(self, encoded: bytes, context: Context) -> Raw:
        """The request is stored as it was sent, which saves encoding it again."""
        check_publish_size(len(encoded))
        request = wire.PublishRequest.FromString(encoded)
        topic = self._catalog.topic(request.topic)
        check_publish(request)
        faults = self._broker.faults
        if faults.active:
            await faults.hang(request.topic)
            if faults.strikes("refuse-publish", request.topic):
                raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the fault refuse-publish is on")
        return wire.PublishResponse(message_ids=await self._broker.publish(topic, request, encoded))


def merge(changes: Raw, current: Raw, mask: FieldMask, mutable: set[str]) -> Raw:
    """A copy of `current` with the masked fields of `changes`."""
    if not mask.paths:
        raise invalid("update_mask: must name at least one field")
    for path in mask.paths:
        field = path.partition(".")[0]
        if field not in current.DESCRIPTOR.fields_by_name:
            raise invalid(f"update_mask: {path!r} is not a field of {current.DESCRIPTOR.name}")
        if field not in mutable:
            raise invalid(f"update_mask: {path!r} cannot be changed")
    merged = type(current)()
    merged.CopyFrom(current)
    mask.MergeMessage(changes, merged, replace_message_field=True, replace_repeated_field=True)
    return merged
