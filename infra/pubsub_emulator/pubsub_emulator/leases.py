"""The consumers of a subscription and their leases: which message is held under which ack id, and until when.

Ack ids are `<subscription>-<message>-<lease>`, in hexadecimal. A client must treat them as opaque.
"""

from __future__ import annotations

import asyncio
import itertools
import re
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from pubsub_emulator.errors import CallRefused, invalid
from pubsub_emulator.message import Delivery
from pubsub_emulator.wire import Raw

CHUNK_MESSAGES: Final = 1000
CHUNK_BYTES: Final = 2_000_000
"""One answer stays well below gRPC's default limit of 4 MB, unless a single message is larger."""

Handed = tuple[str, Delivery]
"""An ack id and what it stands for."""

_SHAPE: Final = re.compile(r"([0-9a-f]{1,12})-([0-9a-f]{1,16})-[0-9a-f]{1,20}")
# Starting from the clock, so that an ack id from before a restart is never given out again.
_lease_number = itertools.count(time.time_ns())
_SMALL: Final = 10_000
"""Alarms with fewer entries are not tidied."""


@dataclass(eq=False, slots=True)
class Consumer:
    """A pull, a stream or the push loop."""

    ack_deadline: float
    """Seconds for which messages are leased to this consumer."""
    max_messages: int = 0
    """How many unsettled messages it accepts; 0 means no limit of its own."""
    max_bytes: int = 0
    outstanding: int = 0
    outstanding_bytes: int = 0
    batch: list[Handed] = field(default_factory=list)
    """Messages handed over and not yet sent. The consumer gets no more until they are sent, which is the back-pressure."""
    busy: bool = False
    ended: CallRefused | None = None
    wake: asyncio.Event = field(default_factory=asyncio.Event)

    def room(self) -> tuple[int, int]:
        """How many messages and bytes the consumer can be handed now."""
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

    def end(self, reason: CallRefused) -> None:
        self.ended = reason
        self.wake.set()


def fill(response: Raw, batch: Iterable[Handed], subscription: Raw) -> None:
    """Write what was handed over into a PullResponse or StreamingPullResponse."""
    counted = subscription.HasField("dead_letter_policy")
    add = response.received_messages.add
    for ack_id, delivery in batch:
        received = add(ack_id=ack_id, delivery_attempt=delivery.failures + 1 if counted else 0)
        delivery.message.copy_to(received.message)


def new_ack_id(subscription_id: int, message_id: int) -> str:
    return f"{subscription_id:x}-{message_id:x}-{next(_lease_number):x}"


def message_of(ack_id: str, subscription_id: int) -> int | None:
    """The message that the ack id was given out for, or None if this subscription never gave it out."""
    parts = _SHAPE.fullmatch(ack_id)
    return int(parts[2], 16) if parts and int(parts[1], 16) == subscription_id else None


class Leases:
    """The leased messages, by ack id."""

    def __init__(self, subscription_id: int) -> None:
        self._subscription_id = subscription_id
        self._by_ack_id: dict[str, Delivery] = {}

    def __len__(self) -> int:
        return len(self._by_ack_id)

    def grant(self, consumer: Consumer, taken: list[Delivery]) -> tuple[float, list[Handed]]:
        """Lease messages to a consumer. Returns when the leases end, and the ack ids with their messages."""
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
        """A second ack id, for the fault `duplicate`. It has no lease of its own, so it counts as one whose lease is over."""
        return new_ack_id(self._subscription_id, delivery.message.id), delivery

    def end(self, delivery: Delivery) -> None:
        self._by_ack_id.pop(delivery.ack_id, None)
        delivery.ack_id = ""
        if delivery.consumer:
            delivery.consumer.release(delivery)
            delivery.consumer = None

    def look_up(self, ack_ids: Sequence[str]) -> list[tuple[str, Delivery | None]]:
        """The delivery of each ack id; None if its lease is over. Raises for an invalid ack id before anything has changed."""
        found = [(ack_id, self._by_ack_id.get(ack_id)) for ack_id in ack_ids]
        for ack_id, delivery in found:
            if delivery is None and message_of(ack_id, self._subscription_id) is None:
                raise invalid(f"ack_ids: {ack_id[:80]!r} was not given out by this subscription")
        return found


class Alarm:
    """One timer for all deadlines of a subscription, which calls `ring` with the messages that are due.

    An entry is a whole batch, because a batch shares its deadline. Settled messages stay in their entry until it
    is due or `_tidy` removes them.
    """

    def __init__(self, ring: Callable[[list[Handed]], None]) -> None:
        self._ring = ring
        self._entries: list[tuple[float, int, list[Handed]]] = []
        self._number = itertools.count()
        self._count = 0
        self._tidy_at = _SMALL
        self._timer: asyncio.TimerHandle | None = None

    def at(self, when: float, handed: list[Handed]) -> None:
        if not handed:
            return
        heappush(self._entries, (when, next(self._number), handed))
        self._count += len(handed)
        if self._count > self._tidy_at:
            self._tidy()
        if self._entries and self._entries[0][0] == when:
            self._arm()

    def stop(self) -> None:
        self._entries.clear()
        self._arm()

    def _tidy(self) -> None:
        """Remove settled messages. Runs only when the count has doubled, so that each entry is examined a few times at most."""
        entries = [(when, number, _still_due(handed, when)) for when, number, handed in self._entries]
        self._entries = [entry for entry in entries if entry[2]]
        heapify(self._entries)
        self._count = sum(len(handed) for _, _, handed in self._entries)
        self._tidy_at = max(_SMALL, 2 * self._count)

    def _arm(self) -> None:
        if self._timer:
            self._timer.cancel()
        loop = asyncio.get_running_loop()
        self._timer = loop.call_at(self._entries[0][0], self._wake) if self._entries else None

    def _wake(self) -> None:
        now = asyncio.get_running_loop().time()
        due: list[Handed] = []
        while self._entries and self._entries[0][0] <= now:
            when, _, handed = heappop(self._entries)
            self._count -= len(handed)
            due += _still_due(handed, when)
        self._arm()
        self._ring(due)


def _still_due(handed: list[Handed], when: float) -> list[Handed]:
    """The messages that were not settled, handed out anew or extended in the meantime."""
    return [
        (ack_id, delivery)
        for ack_id, delivery in handed
        if delivery.ack_id == ack_id and delivery.deadline <= when and not delivery.acked
    ]
