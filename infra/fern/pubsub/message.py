"""What travels: a message as it is kept, and its delivery to one subscription."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from fern.pubsub.consumer import Consumer


class Message:
    """Immutable, shared by every subscription that holds it. `body` is the serialised PubsubMessage, as on disk."""

    __slots__ = ("body", "id", "ordering_key", "published_at")

    def __init__(self, id: int, published_at: int, ordering_key: str, body: bytes) -> None:
        self.id: Final = id
        self.published_at: Final = published_at
        """Microseconds since the epoch."""
        self.ordering_key: Final = ordering_key
        self.body: Final = body


class Delivery:
    """One message on its way through one subscription.

    It is leased while `ack_id` is set, parked while `deadline` is in the future without a lease, and otherwise ready.
    """

    __slots__ = ("ack_id", "acked", "consumer", "deadline", "failures", "lane", "message")

    def __init__(self, message: Message, failures: int = 0, lane: Lane | None = None) -> None:
        self.message: Final = message
        self.failures = failures
        """How often it was nacked or ran out of time: the delivery attempt is one more."""
        self.lane: Final = lane
        self.ack_id = ""
        self.deadline = 0.0
        """When the lease ends or, without a lease, when it may be delivered again."""
        self.consumer: Consumer | None = None
        self.acked = False


class Lane:
    """The messages of one ordering key: handed out in order, and no more while any of them is unsettled."""

    __slots__ = ("held", "key", "not_before", "offered", "unsettled", "waiting")

    def __init__(self, key: str) -> None:
        self.key: Final = key
        self.waiting: deque[Delivery] = deque()
        self.held: list[Delivery] = []
        """Handed out since the lane was last free; acked ones stay, because a nack before them replays them too."""
        self.unsettled = 0
        """How many of `held` are neither acked nor back in `waiting`."""
        self.offered = False
        """True while it is in its subscription's ready queue."""
        self.not_before = 0.0
        """When the backoff of its first message is over."""

    def free(self, now: float) -> bool:
        return bool(self.waiting) and not self.held and self.not_before <= now

    def hand_out(self) -> Delivery:
        delivery = self.waiting.popleft()
        self.held.append(delivery)
        self.unsettled += 1
        return delivery

    def settle(self) -> None:
        """One of those handed out was acked; let go of all of them once none is open."""
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
