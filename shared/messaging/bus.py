"""The bus as the event's path sees it: what is published, what is delivered, and what an adapter has to offer.

`messaging.pubsub` is the adapter for Google Pub/Sub. Nothing else imports Google's client.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol


class Outgoing(NamedTuple):
    data: bytes
    attributes: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Message:
    """A delivery. `delivery_attempt` is 0 if the subscription has no dead-letter policy. `published_at` is in seconds since
    1970, or 0 if it is unknown.
    """

    subscription: str
    ack_id: str
    message_id: str
    data: bytes
    attributes: dict[str, str]
    delivery_attempt: int
    published_at: float = 0.0


class Publisher(Protocol):
    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> Sequence[str]:
        """Publish the messages in order and return the bus's ids. Raises `BusUnavailable` or `PublishRejected`; some of the
        messages may have been published then.
        """


class MessageSource(Protocol):
    """Every method raises `BusUnavailable` if the bus does not answer."""

    async def pull(self, subscription: str, limit: int, *, wait: float) -> list[Message]:
        """Return up to `limit` messages, or an empty list if none arrives within `wait` seconds."""

    def stream(
        self, subscription: str, *, outstanding: int, ack_deadline: int, stop: asyncio.Event
    ) -> AsyncIterator[list[Message]]:
        """Yield batches of messages until `stop` is set, with at most `outstanding` messages unacknowledged."""

    async def acknowledge(self, subscription: str, ack_ids: Sequence[str]) -> None: ...

    async def modify_deadline(self, subscription: str, ack_ids: Sequence[str], seconds: int) -> None:
        """Extend the leases by `seconds`. Zero seconds is a nack: the bus delivers the messages again."""


def by_subscription(messages: Iterable[Message]) -> dict[str, list[str]]:
    """Group the ack ids of messages by subscription."""
    ack_ids = defaultdict[str, list[str]](list)
    for message in messages:
        ack_ids[message.subscription].append(message.ack_id)
    return dict(ack_ids)
