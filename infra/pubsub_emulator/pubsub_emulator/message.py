"""A message as it is stored, and its delivery to one subscription."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pubsub_emulator.wire import Raw

if TYPE_CHECKING:
    from pubsub_emulator.leases import Consumer


@dataclass(eq=False, slots=True)
class Batch:
    """One publish request, stored as it was received: one row on disk. Its message ids count up from its own id."""

    id: Final[int]
    topic_id: Final[int]
    published_at: Final[int]
    """Microseconds since the epoch."""
    request: Final[Raw]

    @property
    def ids(self) -> range:
        return range(self.id, self.id + len(self.request.messages))

    def messages(self) -> list[Message]:
        return [Message(self, message_id, raw) for message_id, raw in zip(self.ids, self.request.messages, strict=True)]


@dataclass(eq=False, slots=True)
class Message:
    """One message of a batch, shared by every subscription that holds it."""

    batch: Final[Batch]
    id: Final[int]
    raw: Final[Raw]
    """The message as it was published, without message id and publish time."""

    def copy_to(self, raw: Raw) -> None:
        """Write the message as a subscriber receives it."""
        raw.CopyFrom(self.raw)
        raw.message_id = str(self.id)
        raw.publish_time.FromMicroseconds(self.batch.published_at)


@dataclass(eq=False, slots=True)
class Delivery:
    """One message on its way through one subscription.

    It is leased while `ack_id` is set, parked while `deadline` is in the future without a lease, and otherwise ready.
    """

    message: Final[Message]
    failures: int = 0
    """How often it was nacked or ran out of time: the delivery attempt is one more."""
    lane: Lane | None = None
    ack_id: str = ""
    deadline: float = 0.0
    """When the lease ends or, without a lease, when it may be delivered again."""
    consumer: Consumer | None = None
    acked: bool = False

    @property
    def size(self) -> int:
        """In bytes."""
        return int(self.message.raw.ByteSize())


@dataclass(eq=False, slots=True)
class Run:
    """A batch that is unpacked only as its messages are handed out, so that a publish costs little."""

    batch: Final[Batch]
    _next: int = 0

    def __len__(self) -> int:
        return len(self.batch.request.messages) - self._next

    def hand_out(self, messages: int, size: int) -> list[Delivery]:
        """As many as fit into both limits, and at least one."""
        batch, taken = self.batch, []
        while self and messages > 0 and size > 0:
            delivery = Delivery(Message(batch, batch.id + self._next, batch.request.messages[self._next]))
            taken.append(delivery)
            self._next += 1
            messages -= 1
            size -= delivery.size
        return taken


@dataclass(eq=False, slots=True)
class Lane:
    """The messages of one ordering key: handed out in order, and no more while any of them is unsettled."""

    waiting: deque[Delivery] = field(default_factory=deque)
    held: list[Delivery] = field(default_factory=list)
    """Handed out since the lane was last free; acked ones stay, because a nack before them replays them too."""
    unsettled: int = 0
    """How many of `held` are neither acked nor back in `waiting`."""
    offered: bool = False
    """True while it is in its subscription's ready queue."""
    not_before: float = 0.0
    """When the backoff of its first message is over."""

    def free(self, now: float) -> bool:
        return bool(self.waiting) and not self.held and self.not_before <= now

    def hand_out(self, messages: int, size: int) -> list[Delivery]:
        """As many as fit into both limits, and at least one."""
        while self.waiting and messages > 0 and size > 0:
            delivery = self.waiting.popleft()
            self.held.append(delivery)
            messages -= 1
            size -= delivery.size
        self.unsettled = len(self.held)
        return list(self.held)

    def settle(self) -> None:
        """Call it when one of `held` was acked. Once none is unsettled, all of them are dropped."""
        self.unsettled -= 1
        if not self.unsettled:
            self.held.clear()

    def rewind(self, delivery: Delivery) -> list[Delivery]:
        """Put `delivery` and everything handed out after it back in front, and return them in order."""
        start = self.held.index(delivery)
        again = self.held[start:]
        del self.held[start:]
        self.unsettled -= sum(not earlier.acked for earlier in again)
        if not self.unsettled:
            self.held.clear()
        self.waiting.extendleft(reversed(again))
        return again
