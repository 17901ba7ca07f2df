"""An extra subscription on every topic, which shows what was published, in which order, and how often."""

import asyncio
from collections.abc import Iterable, Iterator
from typing import NamedTuple

from google.cloud.pubsub_v1 import SubscriberClient

from e2e.support.bus import pull_all
from e2e.support.world import World
from fern.audit.auditor import Finding
from fern.settings import PROJECT_ID
from fern.topology import Declared
from messaging.bus import Message
from messaging.pubsub import PubSub


class Published(NamedTuple):
    """A message on the bus. Of two messages the later one has the higher id. `sequence` counts the events that one source has
    recorded about one labour.
    """

    message_id: int
    event_id: str
    source: str
    labour_id: str
    sequence: int

    @classmethod
    def of(cls, message: Message) -> "Published":
        about = message.attributes
        sequence = int(about.get("ce-sequence", "0"))  # an invalid message of a test has none
        return cls(int(message.message_id), about["ce-id"], about["ce-source"], about["ce-subject"], sequence)


class BusTap:
    def __init__(self, world: World) -> None:
        """Create the subscriptions. Messages that were published before are not seen."""
        self._world = world
        world.use_bus()
        topics = [topic for topic in Declared.load().topics if not topic.endswith(".dlq")]
        self._subscriptions = {f"tap.{topic}": topic for topic in topics}
        with SubscriberClient() as subscriber:
            for name, topic in self._subscriptions.items():
                subscriber.create_subscription(
                    name=f"projects/{PROJECT_ID}/subscriptions/{name}",
                    topic=f"projects/{PROJECT_ID}/topics/{topic}",
                    timeout=60,
                )

    async def drain(self) -> list[Published]:
        """Everything published since the last call, in the order of publishing."""
        self._world.use_bus()
        bus, found = PubSub(PROJECT_ID), set[Published]()
        try:
            while names := self._unread():
                for messages in await asyncio.gather(*(pull_all(bus, name) for name in names)):
                    found.update(map(Published.of, messages))
        finally:
            await bus.close()
        return sorted(found)

    def _unread(self) -> list[str]:
        """The subscriptions with messages, as the bus counts them: a pull without an answer in time proves nothing."""
        names = (item["subscription"] for item in self._world.pubsub.get("/backlog").json()["items"] if item["unacked"])
        return [name for name in names if name in self._subscriptions]


def out_of_order(published: Iterable[Published]) -> Iterator[Finding]:
    """Events of a labour published after a later one. Only the first copy of an event counts: a repetition may come late."""
    last, seen = dict[tuple[str, str], int](), set[str]()
    for message in sorted(published):
        stream = (message.source, message.labour_id)
        if message.event_id not in seen and message.sequence < last.get(stream, 0):
            yield Finding("out-of-order", message.event_id, "published", "A later event was published first.", "")
        seen.add(message.event_id)
        last[stream] = max(last.get(stream, 0), message.sequence)
