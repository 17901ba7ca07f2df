"""Someone who asked a subscription for messages: a pull, a stream or the push loop."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from fern.pubsub.errors import Refused
from fern.pubsub.message import Delivery
from fern.pubsub.wire import Raw

CHUNK_MESSAGES: Final = 1000
CHUNK_BYTES: Final = 2_000_000
"""One answer stays well below gRPC's default limit of 4 MB, unless a single message is larger."""

Handed = tuple[str, Delivery]
"""An ack id and what it stands for."""


@dataclass(eq=False, slots=True)
class Consumer:
    ack_deadline: float
    """Seconds for which what it is handed is leased."""
    max_messages: int = 0
    """How many unsettled messages it accepts; 0 means no limit of its own."""
    max_bytes: int = 0
    outstanding: int = 0
    outstanding_bytes: int = 0
    batch: list[Handed] = field(default_factory=list)
    """Handed over and not yet on the wire. It gets no more until the batch is sent, which is the back-pressure."""
    busy: bool = False
    ended: Refused | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def room(self) -> tuple[int, int]:
        """How many messages and bytes it can be handed now."""
        if self.busy or self.ended:
            return 0, 0
        messages, size = CHUNK_MESSAGES, CHUNK_BYTES
        if self.max_messages:
            messages = min(messages, self.max_messages - self.outstanding)
        if self.max_bytes:
            size = min(size, self.max_bytes - self.outstanding_bytes)
        # A message larger than the whole allowance must still get through when nothing else is outstanding.
        return (messages, max(size, 1)) if size > 0 or not self.outstanding else (0, 0)

    def hand(self, batch: list[Handed]) -> None:
        self.batch, self.busy = batch, True
        self.wake.set()

    async def next_batch(self) -> list[Handed]:
        """Wait for messages; raises when the subscription is gone."""
        await self.wake.wait()
        self.wake.clear()
        if self.ended:
            raise self.ended
        batch, self.batch = self.batch, []
        return batch

    def hold(self, delivery: Delivery) -> None:
        self.outstanding += 1
        self.outstanding_bytes += delivery.size

    def release(self, delivery: Delivery) -> None:
        self.outstanding -= 1
        self.outstanding_bytes -= delivery.size

    def end(self, reason: Refused) -> None:
        self.ended = reason
        self.wake.set()


def fill(response: Raw, batch: Iterable[Handed], subscription: Raw) -> None:
    """Write what was handed over into a PullResponse or StreamingPullResponse."""
    counted = subscription.HasField("dead_letter_policy")
    add = response.received_messages.add
    for ack_id, delivery in batch:
        received = add(ack_id=ack_id, delivery_attempt=delivery.failures + 1 if counted else 0)
        delivery.message.copy_to(received.message)
