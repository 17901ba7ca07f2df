"""From a coroutine to a gRPC method: our refusals become statuses, and nothing else leaks."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from typing import Any

import grpc
import grpc.aio
from google.protobuf.any_pb2 import Any as AnyMessage
from google.rpc.error_details_pb2 import ErrorInfo  # type: ignore[import-untyped]
from google.rpc.status_pb2 import Status  # type: ignore[import-untyped]

from fern.pubsub.errors import Refused, StaleAckIds
from fern.pubsub.wire import Raw

Context = grpc.aio.ServicerContext[Any, Any]
Method = Callable[[Any, Context], Awaitable[Any]]


def unary(method: Method, request: Raw, response: Raw) -> grpc.RpcMethodHandler[Any, Any]:
    """The method gets a message, or with `bytes` as the request the message as it was sent."""
    read = None if request is bytes else request.FromString
    return grpc.unary_unary_rpc_method_handler(
        _guarded(method), request_deserializer=read, response_serializer=response.SerializeToString
    )


def stream(method: Method, request: Raw, response: Raw) -> grpc.RpcMethodHandler[Any, Any]:
    return grpc.stream_stream_rpc_method_handler(
        _guarded(method), request_deserializer=request.FromString, response_serializer=response.SerializeToString
    )


def _guarded(method: Method) -> Any:
    async def guarded(request: Any, context: Context) -> Any:
        try:
            return await method(request, context)
        except StaleAckIds as refusal:
            await context.abort(refusal.code, refusal.message, _error_info(refusal))
        except Refused as refusal:
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
