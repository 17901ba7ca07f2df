"""The raw protobuf classes behind google-cloud-pubsub's types.

The proto-plus wrappers cost more than the RPC that carries them, so the emulator never touches one.
"""

from typing import Any, TypeAlias

from google.protobuf.empty_pb2 import Empty
from google.pubsub_v1 import types

# The classes are made at import time, so no type checker knows them.
Raw: TypeAlias = Any

AcknowledgeRequest: Raw = types.AcknowledgeRequest.pb()
DeleteSubscriptionRequest: Raw = types.DeleteSubscriptionRequest.pb()
DeleteTopicRequest: Raw = types.DeleteTopicRequest.pb()
DetachSubscriptionRequest: Raw = types.DetachSubscriptionRequest.pb()
DetachSubscriptionResponse: Raw = types.DetachSubscriptionResponse.pb()
GetSubscriptionRequest: Raw = types.GetSubscriptionRequest.pb()
GetTopicRequest: Raw = types.GetTopicRequest.pb()
ListSubscriptionsRequest: Raw = types.ListSubscriptionsRequest.pb()
ListSubscriptionsResponse: Raw = types.ListSubscriptionsResponse.pb()
ListTopicSubscriptionsRequest: Raw = types.ListTopicSubscriptionsRequest.pb()
ListTopicSubscriptionsResponse: Raw = types.ListTopicSubscriptionsResponse.pb()
ListTopicsRequest: Raw = types.ListTopicsRequest.pb()
ListTopicsResponse: Raw = types.ListTopicsResponse.pb()
ModifyAckDeadlineRequest: Raw = types.ModifyAckDeadlineRequest.pb()
ModifyPushConfigRequest: Raw = types.ModifyPushConfigRequest.pb()
PublishRequest: Raw = types.PublishRequest.pb()
PublishResponse: Raw = types.PublishResponse.pb()
PubsubMessage: Raw = types.PubsubMessage.pb()
PullRequest: Raw = types.PullRequest.pb()
PullResponse: Raw = types.PullResponse.pb()
SeekRequest: Raw = types.SeekRequest.pb()
SeekResponse: Raw = types.SeekResponse.pb()
StreamingPullRequest: Raw = types.StreamingPullRequest.pb()
StreamingPullResponse: Raw = types.StreamingPullResponse.pb()
Subscription: Raw = types.Subscription.pb()
Topic: Raw = types.Topic.pb()
UpdateSubscriptionRequest: Raw = types.UpdateSubscriptionRequest.pb()
UpdateTopicRequest: Raw = types.UpdateTopicRequest.pb()

__all__ = ["Empty", "Raw"]
