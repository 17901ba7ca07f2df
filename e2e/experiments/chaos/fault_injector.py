"""Carries a schedule out: kills, freezes, restarts, cuts, and switches faults on, and mends each when its time is over.

On a slow machine things break later than scheduled, and what would come too late is left out: a process is given time to come
back before the next one is killed, since a system that is down altogether has nothing to lose.

It also does what a supervisor would: a process that ends by itself is started again; and remembered, because none should.
"""

import asyncio
import os
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import httpx
from uuid_utils.compat import uuid7

from e2e.experiments.chaos.schedule import LEASE, QUARANTINE, TIMEOUT, Action, Kind
from e2e.support.world import World, a_world
from fern.client import APIS
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, temporary_server
from fern.settings import PROJECT_ID, PROJECT_ROOT, SERVICES
from messaging.bus import Outgoing
from messaging.database import connect_raw, is_transient
from messaging.envelope import attributes
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub

LOOK_SECONDS = 0.2
BACK_WITHIN = 30.0  # seconds for a process to start, before the storm goes on without it
MENDED_WITHIN = 180.0  # seconds for the bus or the sandbox to answer, before the run is given up
BROKEN: dict[Kind, str] = {
    "kill": "dead",
    "freeze": "frozen",
    "database": "restart of the database",
    "cut": "cut off",
    "poison": "poisoned",
}
DONE: dict[Kind, str] = {
    "kill": "kills",
    "freeze": "freezes",
    "database": "restarts of the database",
    "cut": "cuts of connections",
    "bus": "faults of the bus",
    "sms": "faults of the provider",
    "poison": "poison messages",
}

TWICE = ("labour-api", "labour-relay", "notification-consumer", "notification-dispatcher")
TIMES = {
    "SMS_LEASE_SECONDS": str(LEASE),
    "SMS_TIMEOUT_SECONDS": str(TIMEOUT),
    "SMS_QUARANTINE_SECONDS": str(QUARANTINE),
}

_CUT = """
    SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity
    WHERE usename = $1 AND pid <> pg_backend_pid() AND random() < $2
"""


@contextmanager
def a_private_world() -> Iterator[tuple[World, TemporaryServer]]:
    """Two of what there may be several of, and a PostgreSQL of its own. Nothing of it stays."""
    with tempfile.TemporaryDirectory(prefix="fern-world-") as directory, temporary_server(Path(directory)) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        urls = {service: server.url(service, service) for service in SERVICES}
        environment = {**os.environ, "FERN_MODE": "local"} | {
            f"{name.upper()}_DATABASE_URL": urls[name] for name in urls
        }
        for service in urls:
            migrate = [sys.executable, "-m", "alembic", "-c", f"services/{service}/alembic.ini", "upgrade", "head"]
            subprocess.run(migrate, cwd=PROJECT_ROOT, env=environment, check=True, timeout=120)
        with a_world(Path(directory) / "home", urls, twice=TWICE, changed=TIMES) as world:
            yield world, server


class Storm:
    """`broken` is kept up to date with what does not work right now; `did` is how often each kind of thing was really done."""

    def __init__(self, world: World, server: TemporaryServer, actions: Sequence[Action], broken: set[str]) -> None:
        self._world, self._server, self._actions, self._broken = world, server, actions, broken
        self._killed: set[str] = set()
        self._http = httpx.AsyncClient(timeout=1.0, trust_env=False)
        self.did = Counter[str]()
        self.died: list[str] = []
        self.poison: set[str] = set()

    async def rage(self, seconds: float) -> None:
        """For as long as that, and until all is mended."""
        began = _now()
        async with asyncio.TaskGroup() as lanes:
            lanes.create_task(asyncio.sleep(seconds))
            for kind in {action.kind for action in self._actions}:
                lane = [action for action in self._actions if action.kind == kind]
                lanes.create_task(self._run(lane, began, began + seconds))
        await self._http.aclose()

    async def _run(self, lane: Sequence[Action], began: float, end: float) -> None:
        for action in lane:
            await asyncio.sleep(began + action.at - _now())
            if _now() > end:
                return
            what = f"{action.target} {BROKEN.get(action.kind, f'({action.kind})')}"
            self._broken.add(what)
            try:
                self.did[DONE[action.kind]] += await self._do(action)
            finally:
                self._broken.discard(what)

    async def _do(self, action: Action) -> bool:
        """Returns when it is mended; False if there was nothing to break."""
        match action.kind:
            case "kill":
                return await self._kill(action)
            case "freeze":
                return await self._freeze(action)
            case "database":
                return await self._restart_database(action)
            case "cut":
                return await self._cut(action)
            case "bus" | "sms":
                return await self._break(action)
            case "poison":
                return await self._poison(action)

    async def _kill(self, action: Action) -> bool:
        self._killed.add(action.target)
        await asyncio.to_thread(self._world.kill, action.target)
        await asyncio.sleep(action.seconds)
        self._world.spawn(action.target)
        self._killed.discard(action.target)
        back_by = _now() + BACK_WITHIN
        while not await asyncio.to_thread(self._world.is_healthy, action.target) and _now() < back_by:  # noqa: ASYNC110
            await asyncio.sleep(LOOK_SECONDS)
        return True

    async def _freeze(self, action: Action) -> bool:
        if self._world.is_dead(action.target):
            return False
        self._world.freeze(action.target)
        await asyncio.sleep(action.seconds)
        self._world.thaw(action.target)  # or whoever took its place, which does no harm
        return True

    async def _restart_database(self, action: Action) -> bool:
        await asyncio.to_thread(self._server.stop if action.target == "fast" else self._server.kill)
        await asyncio.sleep(action.seconds)
        await asyncio.to_thread(self._server.start)
        return True

    async def _cut(self, action: Action) -> bool:
        try:
            connection = await connect_raw(self._server.dsn(), process="chaos")
            try:
                return bool(await connection.fetchval(_CUT, action.target, action.how["share"]))
            finally:
                connection.terminate()
        except Exception as error:
            if not is_transient(error):
                raise
            return False  # it is being restarted, which cuts them all

    async def _break(self, action: Action) -> bool:
        """Whoever is to have the fault may be dead or frozen: then it gets it late, or not at all. It is always cleared."""
        end = _now() + action.seconds
        url = f"{self._world.settings.url(APIS[action.kind])}/faults/{action.target}"
        switched_on = False
        while not switched_on and _now() < end:
            switched_on = await self._call("PUT", url, action.how)
        await asyncio.sleep(end - _now())
        async with asyncio.timeout(MENDED_WITHIN):
            while not await self._call("DELETE", url):
                pass
        return switched_on

    async def _poison(self, action: Action) -> bool:
        """A message that has the shape of an event, and nothing of what such an event must say."""
        event_id, now = uuid7(), datetime.now(UTC)
        about = attributes(
            id=event_id, source="chaos", type=action.target, version=1, subject="nobody", time=now, traceparent=""
        )
        self.poison.add(str(event_id))
        bus = PubSub(PROJECT_ID, timeout=2.0)
        try:
            async with asyncio.timeout(MENDED_WITHIN):
                while not await _publish(bus, action.target, Outgoing(b"{}", {**about, "ce-sequence": "0"})):
                    pass
        finally:
            await bus.close()
        return True

    async def _call(self, method: str, url: str, body: dict[str, object] | None = None) -> bool:
        try:
            (await self._http.request(method, url, json=body)).raise_for_status()
        except httpx.TransportError:
            await asyncio.sleep(LOOK_SECONDS)
            return False
        return True

    async def supervise(self) -> None:
        """Until it is cancelled."""
        while True:
            for name in self._world.running:
                if self._world.is_dead(name) and name not in self._killed:
                    self.died.append(name)
                    self._world.spawn(name)
            await asyncio.sleep(LOOK_SECONDS)


async def _publish(bus: PubSub, topic: str, message: Outgoing) -> bool:
    try:
        await bus.publish(topic, [message])
    except BusUnavailable:
        await asyncio.sleep(LOOK_SECONDS)
        return False
    return True


def _now() -> float:
    return asyncio.get_running_loop().time()
