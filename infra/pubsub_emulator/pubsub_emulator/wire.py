"""The gRPC side: the raw protobuf classes, RPC handlers for coroutines, and pages of names.

The classes are those behind google-cloud-pubsub's types: the proto-plus wrappers cost more than the RPC that carries them, so the
emulator never touches one.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Final, TypeAlias

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.pubsub_v1 import types
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from pubsub_emulator.errors import CallRefused, StaleAckIds, invalid

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

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Context], Awaitable[Any]]

_DEFAULT_PAGE: Final = 100
_LARGEST_PAGE: Final = 1000


def unary(method: Method, request: Raw, response: Raw) -> grpc.RpcMethodHandler[Any, Any]:
    """A handler of one RPC. The method gets a message, or with `bytes` as the request the encoded message."""
    read = None if request is bytes else request.FromString
    return grpc.unary_unary_rpc_method_handler(
        _guarded(method), request_deserializer=read, response_serializer=response.SerializeToString
    )


def stream(method: Method, request: Raw, response: Raw) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.stream_stream_rpc_method_handler(
        _guarded(method), request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def _guarded(method: Method) -> Any:
    """Answer refusals and storage errors with their gRPC status."""

    async def guarded(request: Any, context: Context) -> Any:
        try:
            return await method(request, context)
        except StaleAckIds as refusal:
            await context.abort(refusal.code, refusal.message, _error_info(refusal))
        except CallRefused as refusal:
            await context.abort(refusal.code, refusal.message)
        except sqlite3.Error as error:
            await context.abort(grpc.StatusCode.UNAVAILABLE, f"the change could not be stored: {error}")

    return guarded


def _error_info(refusal: StaleAckIds) -> tuple[tuple[str, bytes], ...]:
    info = ErrorInfo(
        reason="EXACTLY_ONCE_ACKID_FAILURE",
        domain="pubsub.googleapis.com",
        metadata=dict.fromkeys(refusal.ack_ids, "PERMANENT_FAILURE_INVALID_ACK_ID"),
    )
    details = AnyMessage()
    details.Pack(info)
    status = Status(code=refusal.code.value[0], message=refusal.message, details=[details])
    return (("grpc-status-details-bin", status.SerializeToString()),)


def page(names: Iterable[str], size: int, token: str) -> tuple[list[str], str]:
    """Returns one page of the sorted names and the token of the next, empty after the last. The token is the last name seen, so
    that it survives changes in between."""
    if size < 0:
        raise invalid(f"page_size: {size} is negative")
    size = min(size or _DEFAULT_PAGE, _LARGEST_PAGE)
    rest = sorted(name for name in names if name > token)
    chosen = rest[:size]
    return chosen, chosen[-1] if len(rest) > size else ""
