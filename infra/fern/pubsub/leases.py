"""Who holds which message under which ack id."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from fern.pubsub.ack_ids import message_of, new_ack_id
from fern.pubsub.consumer import Consumer, Handed
from fern.pubsub.errors import invalid
from fern.pubsub.message import Delivery


class Leases:
    def __init__(self, subscription_id: int) -> None:
        self._subscription_id = subscription_id
        self._by_ack_id: dict[str, Delivery] = {}

    def grant(self, consumer: Consumer, taken: list[Delivery]) -> tuple[float, list[Handed]]:
        """Returns when the leases end, and what to send."""
        deadline = asyncio.get_running_loop().time() + consumer.ack_deadline
        batch: list[Handed] = []
        for delivery in taken:
            delivery.ack_id = ack_id = new_ack_id(self._subscription_id, delivery.message.id)
            delivery.deadline = deadline
            delivery.consumer = consumer
            consumer.hold(delivery)
            self._by_ack_id[ack_id] = delivery
            batch.append((ack_id, delivery))
        return deadline, batch

    def copy(self, delivery: Delivery) -> Handed:
        """A second ack id without a lease of its own: as good as one that came too late."""
        return new_ack_id(self._subscription_id, delivery.message.id), delivery

    def end(self, delivery: Delivery) -> None:
        self._by_ack_id.pop(delivery.ack_id, None)
        delivery.ack_id = ""
        if delivery.consumer:
            delivery.consumer.release(delivery)
            delivery.consumer = None

    def look_up(self, ack_ids: Sequence[str]) -> list[tuple[str, Delivery | None]]:
        """None for those whose lease is over. All are looked up before anything changes: a bad one refuses the whole request."""
        found = [(ack_id, self._by_ack_id.get(ack_id)) for ack_id in ack_ids]
        for ack_id, delivery in found:
            if delivery is None and message_of(ack_id, self._subscription_id) is None:
                raise invalid(f"ack_ids: {ack_id[:80]!r} was not given out by this subscription")
        return found
