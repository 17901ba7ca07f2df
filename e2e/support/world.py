"""A private world: every process of the system on ports of its own, driven over HTTP, looked into with SQL, killed by signal.

The processes are those of `make up`, without the supervisor, so that a test decides when each lives and dies. Of each service
there may be several: `labour-relay` is the first, `labour-relay-2` the second.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx

from e2e.support.ports import free_port_base
from fern.audit.auditor import Finding, audit
from fern.runtime.processes import Process, processes
from fern.settings import OPERATIONS_TOKEN, PORTS, PROJECT_ID, PROJECT_ROOT, Settings
from fern.tokens import make_token
from fern.topology import Declared, apply

TAKEN = ("subscriber.added", "subscriber.removed", "labour.begun", "labour.announced", "labour.completed")
PATIENCE = 120.0  # seconds until a test gives up waiting; never what makes one pass
_fictional = itertools.count()


@dataclass
class Labour:
    id: UUID
    mother: dict[str, str]  # her authorization
    people: dict[str, str] = field(default_factory=dict)  # name → phone


class World:
    """`bus` is None for the embedded emulator as a process, or the address of another one. `twice` are the services that run
    twice, and `changed` what else is different in the environment of all.
    """

    def __init__(
        self,
        home: Path,
        urls: dict[str, str],
        bus: str | None = None,
        *,
        twice: Sequence[str] = (),
        changed: Mapping[str, str] | None = None,
    ) -> None:
        self.urls, self._bus, self._changed = urls, bus, dict(changed or {})
        self.settings = Settings(free_port_base(), home)
        self.settings.logs.mkdir(parents=True)
        (home / "heartbeats").mkdir()
        self._specs: dict[str, Process] = {process.name: process for process in processes(self.settings)}
        self._specs |= {f"{name}-2": self._second(self._specs[name]) for name in twice}
        self.services = [name for name, spec in self._specs.items() if spec.stage == "service"]
        self._running: dict[str, subprocess.Popen[bytes]] = {}
        self.labour_api = httpx.Client(base_url=self.settings.url("labour-api"), timeout=20)
        self.notification_api = httpx.Client(
            base_url=self.settings.url("notification-api"),
            headers={"Authorization": f"Bearer {OPERATIONS_TOKEN}"},
            timeout=20,
        )
        self.phones = httpx.Client(base_url=self.settings.url("sms-sandbox"), timeout=20)

    # Processes

    def environment(self) -> dict[str, str]:
        """Short times, so that a crash costs a test seconds; the ratios between them are those of production."""
        return {
            **os.environ,
            **self.settings.environment(),
            **{f"{service.upper()}_DATABASE_URL": url for service, url in self.urls.items()},
            **({"PUBSUB_EMULATOR_HOST": self._bus} if self._bus else {}),
            "SMS_LEASE_SECONDS": "3",
            "SMS_TIMEOUT_SECONDS": "1.5",
            "SMS_QUARANTINE_SECONDS": "2",
            "SMS_ASK_SECONDS": "0.2",
            "RELAY_POLL_SECONDS": "0.2",
            "RATE_LIMIT_PER_MINUTE": "1000000",
            **self._changed,
        }

    def _second(self, spec: Process) -> Process:
        """On the first port of ours that nothing has, if it needs one: only the Labour API can run twice on a machine."""
        name = f"{spec.name}-2"
        url = f"http://127.0.0.1:{self.settings.port_base + len(PORTS)}/health/ready" if spec.health_url else None
        return replace(spec, name=name, health_url=url, heartbeat=spec.heartbeat and self.settings.heartbeat(name))

    def start(self, *names: str) -> None:
        """Returns when all are healthy."""
        for name in names:
            self.spawn(name)
        for name in names:
            self.until(lambda: self.is_dead(name) or self.is_healthy(name), f"{name} is healthy")  # noqa: B023
            if self.is_dead(name):
                raise AssertionError(f"{name} died:\n{self.settings.log(name).read_text()[-3000:]}")

    def spawn(self, name: str) -> None:
        spec = self._specs[name]
        environment = self.environment()
        if spec.heartbeat:
            spec.heartbeat.unlink(missing_ok=True)
            environment["HEARTBEAT_FILE"] = str(spec.heartbeat)
        if name == "labour-api-2":
            environment["LABOUR_API_PORT"] = str(self.settings.port_base + len(PORTS))
        environment["FERN_CRASH_AT"] = f"@{self._crash_file(name)}"
        with self.settings.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                spec.command, cwd=PROJECT_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_healthy(self, name: str) -> bool:
        spec = self._specs[name]
        if spec.heartbeat:
            return spec.heartbeat.exists()
        try:
            return self.phones.get(
                str(spec.health_url), timeout=2
            ).is_success  # any client will do; a new one costs much more
        except httpx.TransportError:
            return False

    @property
    def labour_apis(self) -> list[str]:
        specs = (spec for name, spec in self._specs.items() if name.startswith("labour-api"))
        return [str(spec.health_url).removesuffix("/health/ready") for spec in specs]

    @property
    def running(self) -> list[str]:
        """Everything that was ever started, dead or alive."""
        return list(self._running)

    def is_dead(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait(10)

    def crash(self, name: str, point: str, cause: Callable[[], None]) -> None:
        """It dies the next time it reaches the fault point, and stays dead; `cause` is what makes it go there."""
        self._crash_file(name).write_text(point)
        cause()
        self.until(lambda: self.is_dead(name), f"{name} has crashed at {point}")
        self._crash_file(name).unlink()

    def _crash_file(self, name: str) -> Path:
        return self.settings.home / f"{name}.crash-at"

    def freeze(self, name: str) -> None:
        """As if the machine had forgotten it: it holds what it holds, and does nothing."""
        self._running[name].send_signal(signal.SIGSTOP)

    def thaw(self, name: str) -> None:
        self._running[name].send_signal(signal.SIGCONT)

    def stop(self, name: str) -> int:
        """As an orchestrator would; returns the exit code."""
        self._running[name].send_signal(signal.SIGTERM)
        return self._running[name].wait(PATIENCE)

    def start_all(self) -> None:
        self.start("sms-sandbox", *([] if self._bus else ["pubsub"]))
        self.turn_to_the_bus()
        apply(Declared.load(), PROJECT_ID)
        self.start(*self.services)

    def turn_to_the_bus(self) -> None:
        """Clients of the bus that are made in this process from now on speak to ours."""
        os.environ["PUBSUB_EMULATOR_HOST"] = self.environment()["PUBSUB_EMULATOR_HOST"]

    def end(self) -> None:
        for process in self._running.values():
            process.kill()
            process.wait(10)

    # What people do

    def plan(self, *names: str) -> Labour:
        mother = {"Authorization": f"Bearer {make_token(f'mother-{uuid4()}')}"}
        body = {"mother_name": "Ada"}
        planned = self.labour_api.post("/api/v1/labours", json=body, headers=mother).raise_for_status().json()
        labour = Labour(UUID(planned["id"]), mother)
        for name in names:
            self.subscribe(labour, name)
        return labour

    def subscribe(self, labour: Labour, name: str) -> str:
        number = next(_fictional)
        phone = f"+1{(202, 212, 312, 415, 617, 702, 808)[number // 100 % 7]}55501{number % 100:02}"
        person = self.tell(labour, "POST", "/subscribers", {"name": name, "phone": phone})
        labour.people[name] = phone
        return str(person["id"])

    def begin(self, labour: Labour) -> None:
        self.tell(labour, "PUT", "/begin")

    def tell(self, labour: Labour, method: str, path: str, body: dict[str, str] | None = None) -> Any:
        """The mother calls."""
        url = f"/api/v1/labours/{labour.id}{path}"
        answer = self.labour_api.request(method, url, json=body, headers=labour.mother).raise_for_status()
        return answer.json() if answer.content else None

    def complete(self, labour: Labour) -> None:
        """With a key of its own: a client that got no answer may call this again."""
        key = {"Idempotency-Key": f'"complete-{labour.id}"', **labour.mother}
        self.labour_api.put(f"/api/v1/labours/{labour.id}/complete", headers=key).raise_for_status()

    # What can be seen

    def texts(self, labour: Labour) -> dict[str, list[str]]:
        """Every text that reached a phone of this labour, in alphabetical order, with its reference cut off."""
        return {
            name: sorted(
                message["body"].rpartition(" #")[0]
                for message in self.phones.get("/sandbox/messages", params={"to": phone}).json()["items"]
            )
            for name, phone in labour.people.items()
        }

    def sql(self, service: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async def run() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.urls[service].replace("+asyncpg", ""))
            try:
                return list(await connection.fetch(query, *arguments))
            finally:
                await connection.close()

        return asyncio.run(run())

    def fern(self, *arguments: str) -> Any:
        """The command as people use it; its JSON where it lists something."""
        listing = ["--json"] if "ls" in arguments else []
        command = [str(Path(sys.executable).with_name("fern")), *arguments, *listing]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=60, check=False)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout) if listing else done.stdout

    def run(self, service: str, *arguments: str, **changed: str) -> subprocess.CompletedProcess[str]:
        """A process of a service that ends by itself."""
        environment = {**self.environment(), **changed}
        command = [sys.executable, "-m", service, *arguments]
        return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)

    def until(self, true: Callable[[], bool], what: str, seconds: float = PATIENCE) -> None:
        deadline = time.monotonic() + seconds
        while not true():
            assert time.monotonic() < deadline, f"not within {seconds:g} s: {what}"
            time.sleep(0.05)

    def until_everyone_is_told(self, labour: Labour, *texts: str) -> None:
        """Everyone has exactly these texts, and the system is quiet about it: no more are on their way."""

        def settled() -> bool:
            states = self.sql("notification", "SELECT state FROM notification WHERE labour_id = $1", labour.id)
            done = [row for row in states if row["state"] in ("SENT", "DELIVERED")]
            return len(done) == len(states) == len(labour.people) * len(texts)

        self.until(settled, "every message is settled")
        assert self.texts(labour) == {name: sorted(texts) for name in labour.people}

    def assert_nothing_lost_or_doubled(self, labour: Labour) -> None:
        """The auditor finds nothing to say about it, once nothing of it is on its way any more."""
        deadline = time.monotonic() + PATIENCE
        while findings := self.findings(labour):
            assert time.monotonic() < deadline, findings
            time.sleep(0.2)

    def findings(self, labour: Labour) -> list[Finding]:
        events = "SELECT event_id FROM outbox WHERE ordering_key = $1"
        ours = {str(row[0]) for service in self.urls for row in self.sql(service, events, str(labour.id))}
        account = asyncio.run(audit(self.urls, sandbox=self.settings.url("sms-sandbox"), overdue_seconds=0))
        return [finding for finding in account.findings if finding.event_id in {str(labour.id), *ours}]


BEGUN = "Ada is in labour. We will tell you when the baby is here."
COMPLETE = "The baby is here! Ada has given birth."


@contextmanager
def a_world(home: Path, urls: dict[str, str], bus: str | None = None, **different: Any) -> Iterator[World]:
    world = World(home, urls, bus, **different)
    try:
        world.start_all()
        yield world
    finally:
        world.end()
