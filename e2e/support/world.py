"""A whole system for tests and experiments: every process on ports of its own, with its own data and databases.

The processes are those of `make up`, without the supervisor: a test decides when each one starts, freezes and dies. It drives
them over HTTP and looks at their effects with SQL. Services may run twice: `labour-relay` and `labour-relay-2`.
"""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx

from e2e.support.api import OPERATOR, client, speaking_as
from e2e.support.databases import connect
from e2e.support.installation import FERN
from e2e.support.ports import free_port_base
from e2e.support.waiting import PATIENCE, until
from fern.audit.auditor import Finding, audit
from fern.runtime.processes import Process, processes
from fern.settings import PORTS, PROJECT_ID, PROJECT_ROOT, SERVICES, Settings, own
from fern.topology import Declared, apply

BEGUN = "FernLabour: Ada is in labour. We will tell you when the baby is here. Reply STOP to stop."
ANNOUNCED = 'FernLabour: Ada says: "Nearly there!" Reply STOP to stop.'
COMPLETE = "FernLabour: The baby is here! Ada has given birth. Reply STOP to stop."
# Each number is used once, so that no phone has the text of another labour. The area codes are all in use.
_area_codes = [100 * first + last for first in range(2, 10) for last in range(1, 20) if last not in (10, 11)]
_phones = iter([f"+1{area}55501{line:02}" for area in _area_codes for line in range(100)])


def unused_phone() -> str:
    return next(_phones)


@dataclass
class PlannedLabour:
    id: UUID
    mother: dict[str, str]  # the headers of her requests
    people: dict[str, str] = field(default_factory=dict)  # name → phone


class World:
    """`urls` are the databases of the services, already migrated.

    `bus` is the address of a running emulator; without it, the embedded emulator is started as a process. `twice` names the
    services that get a second replica. `environment` overrides variables of every process.
    """

    def __init__(
        self,
        home: Path,
        urls: dict[str, str],
        bus: str | None = None,
        *,
        twice: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.urls, self._bus, self._overrides = urls, bus, dict(environment or {})
        self.settings = Settings(free_port_base(), home)
        self.settings.logs.mkdir(parents=True)
        (home / "heartbeats").mkdir()
        self._specs: dict[str, Process] = {process.name: process for process in processes(self.settings)}
        self._specs |= {f"{name}-2": self._second(self._specs[name]) for name in twice}
        self.services = [name for name, spec in self._specs.items() if spec.stage == "service"]
        self._started: dict[str, subprocess.Popen[bytes]] = {}
        self.labour_api = client(self.settings.url("labour-api"))
        self.operators = {name: client(self.settings.url(f"{name}-operators"), OPERATOR) for name in SERVICES}
        self.sms_sandbox = client(self.settings.url("sms-sandbox"))
        self.pubsub = client(self.settings.url("pubsub-http"))

    # Processes

    def environment(self) -> dict[str, str]:
        """Intervals are short, so that recovery after a crash takes seconds; their ratios are those of production."""
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
            "READ_LIMIT_PER_MINUTE": "1000000",
            "OTEL_EXPORTER_OTLP_ENDPOINT": "",  # no console runs here
            "MONITOR_PORT": "0",
            **self._overrides,
        }

    def _second(self, spec: Process) -> Process:
        """The second replica. Of the APIs only the Labour API has one, which listens on the first port after the system's own."""
        name = f"{spec.name}-2"
        url = f"http://127.0.0.1:{self.settings.port_base + len(PORTS)}/health/ready" if spec.health_url else None
        return replace(spec, name=name, health_url=url, heartbeat=spec.heartbeat and self.settings.heartbeat(name))

    def start(self, *names: str) -> None:
        """Start processes and wait until all are healthy. Fails with the end of its log if one ends instead."""
        for name in names:
            self.spawn(name)
        for name in names:
            until(lambda: self.is_dead(name) or self.is_healthy(name), what=f"{name} is healthy")  # noqa: B023
            if self.is_dead(name):
                raise AssertionError(f"{name} died:\n{self.settings.log(name).read_text()[-3000:]}")

    def spawn(self, name: str, overrides: Mapping[str, str] | None = None) -> None:
        spec = self._specs[name]
        environment = own(self.environment(), name.removesuffix("-2")) | dict(overrides or {})
        if spec.heartbeat:
            spec.heartbeat.unlink(missing_ok=True)
            environment["HEARTBEAT_FILE"] = str(spec.heartbeat)
        if name == "labour-api-2":
            environment |= {"LABOUR_API_PORT": str(self.settings.port_base + len(PORTS)), "LABOUR_OPERATORS_PORT": "0"}
        environment["FERN_CRASH_AT"] = f"@{self.crash_file(name)}"
        with self.settings.log(name).open("ab") as log:
            self._started[name] = subprocess.Popen(
                spec.command, cwd=PROJECT_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def is_healthy(self, name: str) -> bool:
        spec = self._specs[name]
        if spec.heartbeat:
            return spec.heartbeat.exists()
        try:
            answer = self.sms_sandbox.get(str(spec.health_url), timeout=2)  # the URL is absolute: any client will do
            return answer.is_success
        except httpx.TransportError:
            return False

    @property
    def labour_apis(self) -> list[str]:
        """The URLs of all replicas of the Labour API."""
        specs = (spec for name, spec in self._specs.items() if name.startswith("labour-api"))
        return [str(spec.health_url).removesuffix("/health/ready") for spec in specs]

    @property
    def started(self) -> list[str]:
        """Every process that was started, whether it still runs or not."""
        return list(self._started)

    @property
    def pids(self) -> dict[str, int]:
        return {name: process.pid for name, process in self._started.items()}

    def is_dead(self, name: str) -> bool:
        return self._started[name].poll() is not None

    def kill(self, name: str) -> None:
        self._started[name].kill()
        self._started[name].wait(10)

    def crash(self, name: str, point: str, cause: Callable[[], None]) -> None:
        """Kill the process when it next reaches the fault point, and leave it dead. `cause` must make it get there."""
        self.crash_file(name).write_text(point)
        cause()
        until(lambda: self.is_dead(name), what=f"{name} has crashed at {point}")
        self.crash_file(name).unlink()

    def crash_file(self, name: str) -> Path:
        """The file that names the fault point at which the process dies (`messaging.faults`)."""
        return self.settings.home / f"{name}.crash-at"

    def freeze(self, name: str) -> None:
        """Suspend the process: it keeps its connections and locks, and does nothing."""
        self._started[name].send_signal(signal.SIGSTOP)

    def resume(self, name: str) -> None:
        self._started[name].send_signal(signal.SIGCONT)

    def stop(self, name: str) -> int:
        """Send SIGTERM, as an orchestrator does, and return the exit code."""
        self._started[name].send_signal(signal.SIGTERM)
        return self._started[name].wait(PATIENCE)

    def start_all(self) -> None:
        self.start("sms-sandbox", *([] if self._bus else ["pubsub"]))
        self.use_bus()
        apply(Declared.load(), PROJECT_ID)
        self.start(*self.services)

    def use_bus(self) -> None:
        """Connect Pub/Sub clients that this process creates from now on to the bus of this world."""
        os.environ["PUBSUB_EMULATOR_HOST"] = self.environment()["PUBSUB_EMULATOR_HOST"]

    def kill_all(self) -> None:
        for process in self._started.values():
            process.kill()
            process.wait(10)

    # Requests

    def plan(self, *names: str) -> PlannedLabour:
        """Plan a labour of a new mother and subscribe these people, each with a phone number of their own."""
        mother = speaking_as(f"mother-{uuid4()}")
        body = {"mother_name": "Ada"}
        planned = self.labour_api.post("/api/v1/labours", json=body, headers=mother).raise_for_status().json()
        labour = PlannedLabour(UUID(planned["id"]), mother)
        for name in names:
            self.subscribe(labour, name)
        return labour

    def subscribe(self, labour: PlannedLabour, name: str) -> str:
        """Add a person to the labour; returns the id of the subscriber."""
        labour.people[name] = unused_phone()
        body = {"name": name, "phone": labour.people[name]}
        return str(self.request(labour, "POST", "/subscribers", body)["id"])

    def begin(self, labour: PlannedLabour) -> None:
        self.request(labour, "PUT", "/begin")

    def complete(self, labour: PlannedLabour) -> None:
        """Complete the labour, with one idempotency key for each, so that a client without an answer may call this again."""
        self.request(labour, "PUT", "/complete", key=f"complete-{labour.id}")

    def request(
        self, labour: PlannedLabour, method: str, path: str, body: dict[str, Any] | None = None, key: str = ""
    ) -> Any:
        """A request of the mother below her labour's address; returns the JSON of the answer."""
        headers = labour.mother | ({"Idempotency-Key": f'"{key}"'} if key else {})
        url = f"/api/v1/labours/{labour.id}{path}"
        answer = self.labour_api.request(method, url, json=body, headers=headers).raise_for_status()
        return answer.json() if answer.content else None

    # Observations

    def messages(self, phone: str) -> list[dict[str, Any]]:
        """Every SMS to this phone, as the sandbox shows it."""
        items: list[dict[str, Any]] = self.sms_sandbox.get("/sandbox/messages", params={"to": phone}).json()["items"]
        return items

    def texts(self, labour: PlannedLabour) -> dict[str, list[str]]:
        """Every text that reached a person of this labour, in alphabetical order, without its reference."""
        return {
            name: sorted(message["body"].rpartition(" #")[0] for message in self.messages(phone))
            for name, phone in labour.people.items()
        }

    def sql(self, service: str, query: str, *arguments: Any) -> list[asyncpg.Record]:
        async def run() -> list[asyncpg.Record]:
            connection = await connect(self.urls[service])
            try:
                return list(await connection.fetch(query, *arguments))
            finally:
                await connection.close()

        return asyncio.run(run())

    def count(self, service: str, rows: str, *arguments: Any) -> int:
        """How many rows there are; `rows` is a table, with a condition if needed."""
        return int(self.sql(service, f"SELECT count(*) FROM {rows}", *arguments)[0][0])

    def fern(self, *arguments: str, code: int = 0) -> Any:
        """Run the `fern` command on this system. Returns the JSON of a listing, and the output of any other command.

        It must end with the exit code `code`.
        """
        listing = ["--json"] if "ls" in arguments else []
        command = [FERN, *arguments, *listing]
        done = subprocess.run(command, env=self.environment(), capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == code, done.stderr
        return json.loads(done.stdout) if listing else done.stdout

    def run(self, service: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        """Run a process of a service that ends by itself."""
        command = [sys.executable, "-m", service, *arguments]
        everything = self.environment() | environment
        return subprocess.run(command, env=everything, capture_output=True, text=True, timeout=240, check=False)

    def until_everyone_is_told(self, labour: PlannedLabour, *texts: str) -> None:
        """Wait until every message of the labour was sent; then everyone must have exactly these texts."""

        def settled() -> bool:
            states = self.sql("notification", "SELECT state FROM notification WHERE labour_id = $1", labour.id)
            sent = [row for row in states if row["state"] in ("SENT", "DELIVERED")]
            return len(sent) == len(states) == len(labour.people) * len(texts)

        until(settled, what="every message is sent")
        assert self.texts(labour) == {name: sorted(texts) for name in labour.people}

    def until_nothing_is_lost_or_doubled(self, labour: PlannedLabour) -> None:
        """Wait until the auditor has no finding about the labour: none of its events is still being processed."""
        until(lambda: self.findings(labour), lambda findings: not findings, what="the audit is clean")

    def findings(self, labour: PlannedLabour) -> list[Finding]:
        events = "SELECT event_id FROM outbox WHERE ordering_key = $1"
        ours = {str(row[0]) for service in self.urls for row in self.sql(service, events, str(labour.id))}
        account = asyncio.run(audit(self.urls, sandbox=self.settings.url("sms-sandbox"), overdue_seconds=0))
        return [finding for finding in account.findings if finding.event_id in {str(labour.id), *ours}]


@contextmanager
def running_world(home: Path, urls: dict[str, str], bus: str | None = None, **options: Any) -> Iterator[World]:
    """Start every process; kill them all afterwards. The options are those of `World`."""
    world = World(home, urls, bus, **options)
    try:
        world.start_all()
        yield world
    finally:
        world.kill_all()
