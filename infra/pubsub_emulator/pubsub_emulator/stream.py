"""StreamingPull: one stream of messages out, and acks, extensions and keepalives in."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Final

import grpc

from pubsub_emulator import wire
from pubsub_emulator.broker import Broker
from pubsub_emulator.errors import CallRefused, invalid
from pubsub_emulator.leases import Consumer, fill
from pubsub_emulator.policy import check_deadline, check_extension
from pubsub_emulator.subscription import Subscription
from pubsub_emulator.wire import Context, Raw

_LIMITS: Final = ("max_outstanding_messages", "max_outstanding_bytes")
_ONLY_FIRST: Final = ("subscription", "client_id", *_LIMITS, "protocol_version")


class Stream:
    """One stream. `_read` runs as a task and `_send` in the RPC's own coroutine, because only one may write."""

    def __init__(self, broker: Broker, subscription: Subscription, first: Raw, context: Context) -> None:
        self._broker: Final = broker
        self._subscription: Final = subscription
        self._context: Final = context
        self._answers_pings: Final = first.protocol_version >= 1
        self._replies: list[Raw] = []
        self._consumer: Final = Consumer(
            first.stream_ack_deadline_seconds,
            max_messages=max(first.max_outstanding_messages, 0),
            max_bytes=max(first.max_outstanding_bytes, 0),
        )

    @classmethod
    async def serve(
        cls, broker: Broker, find: Callable[[str], Subscription], requests: AsyncIterator[Raw], context: Context
    ) -> None:
        """Serve until the client closes its side, cancels, sends an invalid request, or the subscription is deleted."""
        first = await anext(requests, None)
        if first is None:
            return
        if not first.subscription:
            raise invalid("subscription: must be set in the first request of a stream")
        check_deadline("stream_ack_deadline_seconds", first.stream_ack_deadline_seconds)
        stream = cls(broker, find(first.subscription), first, context)
        await stream._run(first, requests)

    async def _run(self, first: Raw, requests: AsyncIterator[Raw]) -> None:
        consumer = self._consumer
        reader = asyncio.create_task(self._read(first, requests))
        reader.add_done_callback(lambda _: consumer.wake.set())
        self._subscription.join(consumer)
        try:
            while not reader.done():
                await consumer.wake.wait()
                consumer.wake.clear()
                await self._send()
            reader.result()
        finally:
            reader.cancel()
            self._subscription.leave(consumer)

    # ── out ──

    async def _send(self) -> None:
        consumer = self._consumer
        if consumer.ended:
            raise consumer.ended
        while self._replies:
            await self._context.write(self._replies.pop(0))
        if not consumer.batch:
            return
        faults = self._broker.faults
        if faults.active and faults.strikes("drop-streams", self._subscription.config.topic):
            raise CallRefused(grpc.StatusCode.UNAVAILABLE, "the fault drop-streams is on")
        batch, consumer.batch = consumer.batch, []
        response = self._response()
        fill(response, batch, self._subscription.config)
        await self._context.write(response)
        consumer.busy = False
        self._subscription.dispatch()

    def _response(self) -> Raw:
        response = wire.StreamingPullResponse()
        response.subscription_properties.exactly_once_delivery_enabled = self._subscription.exactly_once
        response.subscription_properties.message_ordering_enabled = self._subscription.config.enable_message_ordering
        return response

    # ── in ──

    async def _read(self, first: Raw, requests: AsyncIterator[Raw]) -> None:
        await self._handle(first)
        async for request in requests:
            for field in _ONLY_FIRST:
                if getattr(request, field):
                    raise invalid(f"{field}: may be set in the first request of a stream only")
            if request.stream_ack_deadline_seconds:
                check_deadline("stream_ack_deadline_seconds", request.stream_ack_deadline_seconds)
                self._consumer.ack_deadline = request.stream_ack_deadline_seconds
            await self._handle(request)
            if self._answers_pings and not request.ListFields():
                self._reply(self._response())

    async def _handle(self, request: Raw) -> None:
        if len(request.modify_deadline_seconds) != len(request.modify_deadline_ack_ids):
            raise invalid("modify_deadline_seconds: must have as many entries as modify_deadline_ack_ids")
        for seconds in request.modify_deadline_seconds:
            check_extension("modify_deadline_seconds", seconds)
        if request.ack_ids:
            await self._acknowledge(list(request.ack_ids))
        if request.modify_deadline_ack_ids:
            self._modify_deadlines(list(request.modify_deadline_ack_ids), list(request.modify_deadline_seconds))

    async def _acknowledge(self, ack_ids: list[str]) -> None:
        stored, stale = self._broker.acknowledge(self._subscription, ack_ids)
        if not self._subscription.exactly_once:
            return  # no answer has to wait for the disk
        await stored
        response = self._response()
        response.acknowledge_confirmation.ack_ids.extend(set(ack_ids) - set(stale))
        response.acknowledge_confirmation.invalid_ack_ids.extend(stale)
        self._reply(response)

    def _modify_deadlines(self, ack_ids: list[str], deadlines: list[int]) -> None:
        by_deadline: dict[int, list[str]] = {}
        for ack_id, seconds in zip(ack_ids, deadlines, strict=True):
            by_deadline.setdefault(seconds, []).append(ack_id)
        stale: list[str] = []
        for seconds, group in by_deadline.items():
            stale += self._subscription.modify_deadline(group, seconds)
        if self._subscription.exactly_once:
            response = self._response()
            response.modify_ack_deadline_confirmation.ack_ids.extend(set(ack_ids) - set(stale))
            response.modify_ack_deadline_confirmation.invalid_ack_ids.extend(stale)
            self._reply(response)

    def _reply(self, response: Raw) -> None:
        self._replies.append(response)
        self._consumer.wake.set()
