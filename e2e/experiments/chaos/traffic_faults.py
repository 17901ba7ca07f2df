"""Faults of the bus and of the provider, poison messages, and too many clients."""

import asyncio
from datetime import UTC, datetime
from functools import partial

import httpx
from uuid_utils.compat import uuid7

from e2e.experiments.chaos.load_generator import ClientLog, overload
from e2e.experiments.chaos.schedule import ScheduledFault
from e2e.support.api import async_client
from e2e.support.waiting import eventually
from e2e.support.world import World
from fern.client import APIS
from fern.settings import PROJECT_ID
from messaging.bus import Outgoing
from messaging.envelope import attributes
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub

ANSWERS_WITHIN = 180.0  # seconds for the bus or the sandbox, before the run fails
AT_ONCE = 500  # messages in one request


class TrafficFaults:
    """`poison` has the ids of the invalid messages that were published. Each fault returns when it has ended."""

    def __init__(self, world: World, log: ClientLog, seed: int) -> None:
        self._world, self._log, self._seed = world, log, seed
        self._http = async_client("", timeout=1.0)
        self.poison = set[str]()

    async def close(self) -> None:
        await self._http.aclose()

    async def switch(self, action: ScheduledFault) -> bool:
        """Switch on a fault of the bus or the sandbox. While that process is dead or frozen, try again until the time is over."""
        loop = asyncio.get_running_loop()
        end = loop.time() + action.seconds
        url = f"{self._world.settings.url(APIS[action.kind])}/faults/{action.target}"
        switched_on = False
        while not switched_on and loop.time() < end:
            switched_on = await self._call("PUT", url, action.options)
            await asyncio.sleep(0 if switched_on else 0.05)
        await asyncio.sleep(end - loop.time())
        await eventually(lambda: self._call("DELETE", url), what=f"{url} is deleted", seconds=ANSWERS_WITHIN)
        return switched_on

    async def _call(self, method: str, url: str, body: dict[str, object] | None = None) -> bool:
        try:
            (await self._http.request(method, url, json=body)).raise_for_status()
        except httpx.TransportError:
            return False
        return True

    async def publish_poison(self, action: ScheduledFault) -> bool:
        """Publish messages with the attributes of an event and none of its data."""
        messages = [self._poison(action.target) for _ in range(action.options.get("messages", 1))]
        bus = PubSub(PROJECT_ID, timeout=5.0)
        try:
            for first in range(0, len(messages), AT_ONCE):
                published = partial(_publish, bus, action.target, messages[first : first + AT_ONCE])
                await eventually(published, what="the poison is published", seconds=ANSWERS_WITHIN)
        finally:
            await bus.close()
        return True

    def _poison(self, topic: str) -> Outgoing:
        event_id, now = uuid7(), datetime.now(UTC)
        self.poison.add(str(event_id))
        about = attributes(
            id=event_id, source="chaos", type=topic, version=1, subject="poison", time=now, traceparent=""
        )
        return Outgoing(b"{}", about)

    async def overload(self, action: ScheduledFault) -> bool:
        """Let many more clients than usual plan labours, at one replica of the API."""
        replicas = [name for name in self._world.started if name.startswith("labour-api")]
        url = self._world.labour_apis[replicas.index(action.target)]
        clients = action.options["clients"]
        return await overload(url, self._log, f"{self._seed}/{action.at}", clients, action.seconds) > 0


async def _publish(bus: PubSub, topic: str, messages: list[Outgoing]) -> bool:
    try:
        await bus.publish(topic, messages)
    except BusUnavailable:
        return False
    return True
