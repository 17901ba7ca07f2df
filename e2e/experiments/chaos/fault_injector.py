"""The fault injector: starts each fault of a schedule, and ends it when its time is over.

On a slow machine faults start later than scheduled, and those that would start after the end are skipped: a killed process is
given time to become healthy before the next one is killed, because a system that is down altogether can lose nothing.

It also supervises: a process that ends by itself is started again, and reported, because none should.
"""

import asyncio
import tempfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import httpx
from uuid_utils.compat import uuid7

from e2e.experiments.chaos.schedule import LEASE, QUARANTINE, TIMEOUT, FaultKind, ScheduledFault
from e2e.support.api import async_client
from e2e.support.databases import migrated_server, service_urls
from e2e.support.waiting import eventually
from e2e.support.world import World, running_world
from fern.client import APIS
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ID
from messaging.bus import Outgoing
from messaging.database import connect_raw, is_transient
from messaging.envelope import attributes
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub

POLL_SECONDS = 0.2
HEALTHY_WITHIN = 30.0  # seconds for a killed process, before the next one is killed
ANSWERS_WITHIN = 180.0  # seconds for the bus or the sandbox, before the run fails
# Of each kind: what is wrong with the target meanwhile, and what such faults are called in the account.
LABELS: dict[FaultKind, tuple[str, str]] = {
    "kill": ("dead", "kills"),
    "freeze": ("frozen", "freezes"),
    "database": ("restart of the database", "restarts of the database"),
    "cut": ("cut off", "cuts of connections"),
    "bus": ("(bus)", "faults of the bus"),
    "sms": ("(sms)", "faults of the provider"),
    "poison": ("poisoned", "poison messages"),
}

REPLICATED = ("labour-api", "labour-relay", "notification-consumer", "notification-dispatcher")
ENVIRONMENT = {
    "SMS_LEASE_SECONDS": str(LEASE),
    "SMS_TIMEOUT_SECONDS": str(TIMEOUT),
    "SMS_QUARANTINE_SECONDS": str(QUARANTINE),
}

_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE usename = $1 AND pid <> pg_backend_pid() AND random() < $2
"""


@contextmanager
def replicated_world() -> Iterator[tuple[World, TemporaryServer]]:
    """A world with two replicas of the main processes, on a PostgreSQL of its own. Everything is deleted afterwards."""
    with tempfile.TemporaryDirectory(prefix="fern-world-") as directory, migrated_server(Path(directory)) as server:
        home, urls = Path(directory) / "home", service_urls(server)
        with running_world(home, urls, twice=REPLICATED, environment=ENVIRONMENT) as world:
            yield world, server


class FaultInjector:
    """`active` always holds the faults of this moment.

    After `run`: `injected` counts the faults that took effect, `died` names the processes that ended by themselves, and `poison`
    has the ids of the invalid messages that were published.
    """

    def __init__(
        self, world: World, server: TemporaryServer, actions: Sequence[ScheduledFault], active: set[str]
    ) -> None:
        self._world, self._server, self._actions, self._active = world, server, actions, active
        self._killed: set[str] = set()
        self._http = async_client("", timeout=1.0)
        self._inject: dict[FaultKind, Callable[[ScheduledFault], Awaitable[bool]]] = {
            "kill": self._kill,
            "freeze": self._freeze,
            "database": self._restart_database,
            "cut": self._cut_connections,
            "bus": self._switch_fault,
            "sms": self._switch_fault,
            "poison": self._publish_poison,
        }
        self.injected = Counter[str]()
        self.died: list[str] = []
        self.poison: set[str] = set()

    async def run(self, seconds: float) -> None:
        """Inject faults for this long. Returns when all of them have ended."""
        began = _now()
        async with asyncio.TaskGroup() as kinds:
            kinds.create_task(asyncio.sleep(seconds))
            for kind in {action.kind for action in self._actions}:
                actions = [action for action in self._actions if action.kind == kind]
                kinds.create_task(self._run_in_turn(actions, began, began + seconds))
        await self._http.aclose()

    async def _run_in_turn(self, actions: Sequence[ScheduledFault], began: float, end: float) -> None:
        for action in actions:
            await asyncio.sleep(began + action.at - _now())
            if _now() > end:
                return
            state, name = LABELS[action.kind]
            label = f"{action.target} {state}"
            self._active.add(label)
            try:
                self.injected[name] += await self._inject[action.kind](action)
            finally:
                self._active.discard(label)

    # Each returns when its fault has ended: True if it took effect.

    async def _kill(self, action: ScheduledFault) -> bool:
        self._killed.add(action.target)
        await asyncio.to_thread(self._world.kill, action.target)
        await asyncio.sleep(action.seconds)
        self._world.spawn(action.target)
        self._killed.discard(action.target)
        with suppress(AssertionError):  # then the run continues without it
            healthy = partial(asyncio.to_thread, self._world.is_healthy, action.target)
            await eventually(healthy, what=f"{action.target} is healthy", seconds=HEALTHY_WITHIN)
        return True

    async def _freeze(self, action: ScheduledFault) -> bool:
        if self._world.is_dead(action.target):
            return False
        self._world.freeze(action.target)
        await asyncio.sleep(action.seconds)
        self._world.resume(action.target)  # if it was killed meanwhile, the signal does not harm its successor
        return True

    async def _restart_database(self, action: ScheduledFault) -> bool:
        await asyncio.to_thread(self._server.stop if action.target == "fast" else self._server.kill)
        await asyncio.sleep(action.seconds)
        await asyncio.to_thread(self._server.start)
        return True

    async def _cut_connections(self, action: ScheduledFault) -> bool:
        try:
            connection = await connect_raw(self._server.dsn(), process="chaos")
            try:
                return bool(await connection.fetchval(_CUT, action.target, action.options["share"]))
            finally:
                connection.terminate()
        except Exception as error:
            if not is_transient(error):
                raise
            return False  # the database is being restarted, which cuts every connection

    async def _switch_fault(self, action: ScheduledFault) -> bool:
        """Switch on a fault of the bus or the sandbox. While that process is dead or frozen, try again until the time is over."""
        end = _now() + action.seconds
        url = f"{self._world.settings.url(APIS[action.kind])}/faults/{action.target}"
        switched_on = False
        with suppress(AssertionError):
            put = partial(self._call, "PUT", url, action.options)
            switched_on = await eventually(put, seconds=action.seconds)
        await asyncio.sleep(end - _now())
        await eventually(lambda: self._call("DELETE", url), what=f"{url} is deleted", seconds=ANSWERS_WITHIN)
        return switched_on

    async def _call(self, method: str, url: str, body: dict[str, object] | None = None) -> bool:
        try:
            (await self._http.request(method, url, json=body)).raise_for_status()
        except httpx.TransportError:
            return False
        return True

    async def _publish_poison(self, action: ScheduledFault) -> bool:
        """Publish a message with the attributes of an event and none of its data."""
        event_id, now = uuid7(), datetime.now(UTC)
        about = attributes(
            id=event_id, source="chaos", type=action.target, version=1, subject="poison", time=now, traceparent=""
        )
        self.poison.add(str(event_id))
        bus = PubSub(PROJECT_ID, timeout=2.0)
        try:
            message = Outgoing(b"{}", about)
            published = partial(_publish, bus, action.target, message)
            await eventually(published, what="the poison is published", seconds=ANSWERS_WITHIN)
        finally:
            await bus.close()
        return True

    async def supervise(self) -> None:
        """Restart processes that end by themselves, until cancelled."""
        while True:
            for name in self._world.started:
                if self._world.is_dead(name) and name not in self._killed:
                    self.died.append(name)
                    self._world.spawn(name)
            await asyncio.sleep(POLL_SECONDS)


async def _publish(bus: PubSub, topic: str, message: Outgoing) -> bool:
    try:
        await bus.publish(topic, [message])
    except BusUnavailable:
        return False
    return True


def _now() -> float:
    return asyncio.get_running_loop().time()
