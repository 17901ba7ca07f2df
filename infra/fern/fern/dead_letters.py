"""Dead letters: messages that a consumer could not handle. They stay in the subscription `<topic>.dlq` until an operator decides.

`Look` pulls them without acking. It extends their leases, so that it sees each message once, and gives them back when it ends.
While one look holds the messages, another sees none of them.
"""

import asyncio
import contextlib
import json
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Self
from uuid import UUID

from fern.client import call
from fern.errors import NotRunning
from fern.settings import CONSUMERS, Settings
from fern.topology import Declared
from messaging.bus import Message, Outgoing, by_subscription
from messaging.envelope import as_binary
from messaging.errors import BusUnavailable, PublishRejected, Undecodable
from messaging.pubsub import PubSub
from servicekit.logs import mask_value

SUFFIX = ".dlq"
BY_US = "dead-letter-"
BY_THE_BUS = "CloudPubSubDeadLetterSource"
LEASE_SECONDS = 10
WAIT_SECONDS = 1.5  # without a message, after which a subscription counts as empty
MOST = 10_000  # messages held by one look
BATCH = 100  # messages published or discarded at once


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """`reason` is the consumer's, or `deliveries-exhausted` if the bus itself dead-lettered the message."""

    message: Message
    topic: str
    consumer: str
    reason: str
    event_id: str  # empty if it has none
    type: str

    @classmethod
    def of(cls, message: Message) -> "DeadLetter":
        attributes: Mapping[str, str] = message.attributes
        by_the_bus = attributes.get(f"{BY_THE_BUS}Subscription", "")
        context = attributes
        with contextlib.suppress(Undecodable):
            context, _ = as_binary(attributes, message.data)
        return cls(
            message,
            topic=message.subscription.removesuffix(SUFFIX),
            consumer=attributes.get(f"{BY_US}consumer") or by_the_bus.partition(".")[0],
            reason=attributes.get(f"{BY_US}reason") or ("deliveries-exhausted" if by_the_bus else "unknown"),
            event_id=context.get("ce-id", ""),
            type=context.get("ce-type", ""),
        )

    @property
    def died_at(self) -> str:
        return datetime.fromtimestamp(self.message.published_at, UTC).isoformat(timespec="seconds")

    @property
    def original(self) -> dict[str, str]:
        """The attributes of the message before it was dead-lettered."""
        added = (BY_US, BY_THE_BUS, "googclient_")
        return {name: value for name, value in self.message.attributes.items() if not name.startswith(added)}

    def facts(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("event_id", "topic", "consumer", "reason", "died_at")}

    def details(self) -> dict[str, Any]:
        """The facts, why the consumer failed, and the content without people's names, numbers and texts."""
        detail, attributes = self.message.attributes.get(f"{BY_US}detail", ""), mask_value(self.original)
        return {**self.facts(), "detail": detail, "attributes": attributes, "data": _masked(self.message.data)}


class Look:
    """Holds dead letters until its context ends. Then every message that was not acked is given back to the bus at once."""

    def __init__(self, bus: PubSub, topics: Iterable[str] = ()) -> None:
        """`topics` are those whose dead letters are pulled; without any, all that are declared."""
        self._bus = bus
        declared = (topic.removesuffix(SUFFIX) for topic in Declared.load().topics if topic.endswith(SUFFIX))
        self._subscriptions = [topic + SUFFIX for topic in topics or declared]
        self._held: dict[str, dict[str, DeadLetter]] = {name: {} for name in self._subscriptions}  # by ack id

    async def __aenter__(self) -> Self:
        self._extending = asyncio.create_task(self._extend_leases(), name="leases")
        return self

    async def __aexit__(self, *_: object) -> None:
        self._extending.cancel()
        await asyncio.gather(self._extending, return_exceptions=True)
        await self.hold(0)

    @property
    def is_full(self) -> bool:
        return sum(len(held) for held in self._held.values()) >= MOST

    async def batches(self) -> AsyncIterator[list[DeadLetter]]:
        """Yield dead letters as they arrive, until every subscription is empty or the look is full."""
        pending = list(self._subscriptions)
        while pending and not self.is_full:
            answers = await asyncio.gather(*(self._pull(name) for name in pending))
            pending = [name for name, letters in zip(pending, answers, strict=True) if letters]
            for letters in filter(None, answers):
                yield letters

    async def _pull(self, subscription: str) -> list[DeadLetter]:
        letters = [DeadLetter.of(message) for message in await self._bus.pull(subscription, 500, wait=WAIT_SECONDS)]
        self._held[subscription] |= {letter.message.ack_id: letter for letter in letters}
        return letters

    async def ack(self, letters: Iterable[DeadLetter]) -> None:
        for subscription, ack_ids in by_subscription(letter.message for letter in letters).items():
            await self._bus.acknowledge(subscription, ack_ids)
            for ack_id in ack_ids:
                self._held[subscription].pop(ack_id, None)

    async def _extend_leases(self) -> None:
        while True:
            await asyncio.sleep(LEASE_SECONDS / 3)
            await self.hold(LEASE_SECONDS)

    async def hold(self, seconds: int) -> None:
        """Lease all messages seen so far for this time; 0 gives them back to the bus."""
        for subscription, held in self._held.items():
            if held:
                with contextlib.suppress(BusUnavailable):  # then the leases expire by themselves
                    await self._bus.modify_deadline(subscription, list(held), seconds)


async def dead_letters(bus: PubSub, topics: Iterable[str] = ()) -> AsyncIterator[DeadLetter]:
    """Every dead letter, up to `MOST`, held until the iteration ends. An event that was dead-lettered twice comes twice."""
    async with Look(bus, topics) as look:
        async for batch in look.batches():
            for letter in batch:
                yield letter


def groups_of(letters: Iterable[DeadLetter]) -> list[dict[str, Any]]:
    """Group dead letters by topic, consumer and reason. Each group has the id of one of its events."""
    groups = defaultdict[tuple[str, str, str], list[DeadLetter]](list)
    for letter in letters:
        groups[letter.topic, letter.consumer, letter.reason].append(letter)
    return [
        {
            "topic": topic,
            "consumer": consumer,
            "reason": reason,
            "count": len(group),
            "oldest_died_at": min(letter.died_at for letter in group),
            "event_id": group[0].event_id,
        }
        for (topic, consumer, reason), group in sorted(groups.items())
    ]


async def redrive_letters(
    bus: PubSub, look: Look, letters: Iterable[DeadLetter], advance: Callable[[int], None] = lambda _: None
) -> int:
    """Publish dead letters to their topics, then ack them. An event that several consumers could not handle is published once.
    Returns how many are done; those that the bus rejected stay dead letters.
    """
    done, seen = 0, set[tuple[str, str]]()
    for topic, batch in _batches(letters):
        copies = {(topic, one.event_id or one.message.message_id): one for one in batch}
        fresh = [one for key, one in copies.items() if key not in seen]
        with contextlib.suppress(PublishRejected):
            await bus.publish(topic, [Outgoing(letter.message.data, letter.original) for letter in fresh])
            await look.ack(batch)
            seen |= copies.keys()
            done += len(batch)
        advance(len(batch))
    return done


async def discard_letters(look: Look, letters: Iterable[DeadLetter]) -> AsyncIterator[DeadLetter]:
    """Record in the consumers' databases that an operator discarded them, then ack them. Yields each when it is done."""
    for _, batch in _batches(letters):
        await asyncio.to_thread(_record, batch)
        await look.ack(batch)
        for letter in batch:
            yield letter


def _record(letters: list[DeadLetter]) -> None:
    for consumer, service in CONSUMERS.items():
        event_ids = {uuid for one in letters if one.consumer == consumer and (uuid := _uuid(one.event_id))}
        if event_ids:
            body = {"consumer": consumer, "event_ids": sorted(event_ids)}
            call(service, "POST", "/operations/claims/discard", json=body)


def _batches(letters: Iterable[DeadLetter]) -> Iterator[tuple[str, list[DeadLetter]]]:
    by_topic = defaultdict[str, list[DeadLetter]](list)
    for letter in letters:
        by_topic[letter.topic].append(letter)
    for topic, of_topic in by_topic.items():
        for start in range(0, len(of_topic), BATCH):
            yield topic, of_topic[start : start + BATCH]


def _masked(data: bytes) -> Any:
    with contextlib.suppress(ValueError):
        if isinstance(content := json.loads(data), dict):
            return mask_value(content)
    return f"[{len(data)} bytes that are no JSON object]"


def _uuid(text: str) -> str | None:
    with contextlib.suppress(ValueError):
        return str(UUID(text))
    return None


@contextlib.asynccontextmanager
async def open_bus() -> AsyncIterator[PubSub]:
    """Connect to the bus of the context. Locally PUBSUB_PROJECT_ID may name another project. Raises `NotRunning`."""
    bus = PubSub(Settings.load().use_bus())
    try:
        yield bus
    except BusUnavailable as error:
        command = "fern topology apply" if str(error).startswith("NOT_FOUND") else "fern status"
        raise NotRunning(f"the dead letters cannot be read: {error}", command=command) from None
    finally:
        await bus.close()
