"""Dead letters: messages that a consumer could not handle. They stay in the subscription `<topic>.dlq` until a person decides.

`Look` pulls them without acking. It extends their leases, so that it sees each message once, and gives them back when it ends.
While one look holds the messages, another sees none of them.
"""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Self

from fern.errors import NotRunning
from fern.settings import PROJECT_ID, Settings
from fern.topology import Declared
from messaging.bus import Message, by_subscription
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub

SUFFIX = ".dlq"
BY_US = "dead-letter-"
BY_THE_BUS = "CloudPubSubDeadLetterSource"
LEASE_SECONDS = 10
WAIT_SECONDS = 1.5  # without a message, after which a subscription counts as empty
MOST = 10_000  # messages held by one look


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
        return cls(
            message,
            topic=message.subscription.removesuffix(SUFFIX),
            consumer=attributes.get(f"{BY_US}consumer") or by_the_bus.partition(".")[0],
            reason=attributes.get(f"{BY_US}reason") or ("deliveries-exhausted" if by_the_bus else "unknown"),
            event_id=attributes.get("ce-id", ""),
            type=attributes.get("ce-type", ""),
        )

    @property
    def died_at(self) -> str:
        return datetime.fromtimestamp(self.message.published_at, UTC).isoformat(timespec="seconds")

    @property
    def original(self) -> dict[str, str]:
        """Its attributes before it was dead-lettered."""
        added = (BY_US, BY_THE_BUS, "googclient_")
        return {name: value for name, value in self.message.attributes.items() if not name.startswith(added)}


class Look:
    """A context manager. On exit, every message that was not acked is given back at once."""

    def __init__(self, bus: PubSub, topics: Iterable[str] = ()) -> None:
        """Of these topics; of all that are declared, if there are none."""
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
        """As they arrive, until every subscription is empty or the look is full."""
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
        """Lease all messages seen so far for so long; 0 gives them back."""
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


@contextlib.asynccontextmanager
async def open_bus() -> AsyncIterator[PubSub]:
    """The bus of the local system, or of the project PUBSUB_PROJECT_ID. Raises `NotRunning`."""
    project = os.environ.get("PUBSUB_PROJECT_ID", PROJECT_ID)
    Settings.load().use_local_bus(project)
    bus = PubSub(project)
    try:
        yield bus
    except BusUnavailable as error:
        command = "fern topology apply" if str(error).startswith("NOT_FOUND") else "fern status"
        raise NotRunning(f"the dead letters cannot be read: {error}", command=command) from None
    finally:
        await bus.close()
