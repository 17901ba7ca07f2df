"""Push subscriptions: each message is an HTTP POST, and the answer is the ack or the nack."""

from __future__ import annotations

import asyncio
import base64
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from fern.pubsub.broker import Broker
from fern.pubsub.consumer import Consumer, Handed
from fern.pubsub.errors import Refused
from fern.pubsub.subscription import Subscription
from fern.pubsub.tokens import Signer
from fern.pubsub.wire import PubsubMessage
from messaging.logs import get_logger

if TYPE_CHECKING:
    import httpx

log = get_logger()

_SUCCESS: Final = frozenset({102, 200, 201, 202, 204})
_IN_FLIGHT: Final = 32
"""Requests to one endpoint at a time."""


class Pushers:
    """One pusher for each subscription that has an endpoint."""

    def __init__(self, broker: Broker, signer: Signer) -> None:
        self._broker: Final = broker
        self._signer: Final = signer
        self._running: dict[Subscription, asyncio.Task[None]] = {}
        broker.catalog.on_change = self.refresh
        for subscription in broker.catalog.subscriptions.values():
            self.refresh(subscription)

    def refresh(self, subscription: Subscription) -> None:
        """The subscription is new, changed or gone."""
        if task := self._running.pop(subscription, None):
            task.cancel()
        exists = self._broker.catalog.subscriptions.get(subscription.name) is subscription
        if exists and subscription.config.push_config.push_endpoint and not subscription.config.detached:
            self._running[subscription] = asyncio.create_task(_Pusher(self._broker, self._signer, subscription).run())

    async def stop(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


class _Pusher:
    def __init__(self, broker: Broker, signer: Signer, subscription: Subscription) -> None:
        self._broker: Final = broker
        self._signer: Final = signer
        self._subscription: Final = subscription

    async def run(self) -> None:
        import httpx  # here, because few ever push

        subscription = self._subscription
        deadline = subscription.config.ack_deadline_seconds
        consumer = Consumer(deadline, max_messages=_IN_FLIGHT)
        subscription.join(consumer)
        try:
            async with httpx.AsyncClient(timeout=deadline) as client, asyncio.TaskGroup() as group:
                while True:
                    batch = await consumer.next_batch()
                    consumer.busy = False
                    for lane, handed in groupby(batch, key=lambda one: one[1].lane):
                        # Messages of a key one after the other, all others side by side.
                        for row in [list(handed)] if lane else [[one] for one in handed]:
                            group.create_task(self._push_in_order(client, row))
                    subscription.dispatch()
        except Refused:
            pass  # the subscription is gone
        finally:
            subscription.leave(consumer)

    async def _push_in_order(self, client: httpx.AsyncClient, row: list[Handed]) -> None:
        for ack_id, delivery in row:
            if delivery.ack_id != ack_id:
                return  # an earlier one failed, and took this one back with it
            accepted = await self._push(client, ack_id, self._body((ack_id, delivery)))
            if accepted:
                self._broker.acknowledge(self._subscription, [ack_id])
            else:
                self._subscription.modify_deadline([ack_id], 0)

    async def _push(self, client: httpx.AsyncClient, ack_id: str, body: dict[str, Any]) -> bool:
        import httpx

        config = self._subscription.config.push_config
        headers = {}
        if config.HasField("oidc_token"):
            audience = config.oidc_token.audience or config.push_endpoint
            token = self._signer.token(config.oidc_token.service_account_email, audience)
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = await client.post(config.push_endpoint, json=body, headers=headers)
        except httpx.HTTPError as error:
            log.info("push failed", subscription=self._subscription.name, error=repr(error)[:200])
            return False
        if response.status_code not in _SUCCESS:
            log.info("push refused", subscription=self._subscription.name, status=response.status_code)
        return response.status_code in _SUCCESS

    def _body(self, handed: Handed) -> dict[str, Any]:
        _, delivery = handed
        raw = PubsubMessage()
        delivery.message.copy_to(raw)
        published = raw.publish_time.ToJsonString()
        message: dict[str, Any] = {
            "data": base64.b64encode(raw.data).decode(),
            "attributes": dict(raw.attributes),
            # The service sends both spellings.
            "messageId": raw.message_id,
            "message_id": raw.message_id,
            "publishTime": published,
            "publish_time": published,
        }
        if raw.ordering_key:
            message["orderingKey"] = raw.ordering_key
        body: dict[str, Any] = {"message": message, "subscription": self._subscription.name}
        if self._subscription.config.HasField("dead_letter_policy"):
            body["deliveryAttempt"] = delivery.failures + 1
        return body
