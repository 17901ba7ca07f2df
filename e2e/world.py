"""A private world: every process of the system on ports of its own, driven over HTTP, looked into with SQL, killed by signal.

The processes are those of `make up`, without the supervisor, so that a test decides when each lives and dies.
"""

import asyncio
import itertools
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import httpx

from fern.runtime.processes import Process, processes
from fern.settings import OPERATIONS_TOKEN, PROJECT_ROOT, Settings
from fern.token import make_token
from fern.topology import Declared, apply
from tests.runtime.ports import free_port_base

SERVICES = (
    "labour-api",
    "labour-relay",
    "labour-consumer",
    "notification-api",
    "notification-consumer",
    "notification-dispatcher",
    "notification-relay",
)
TAKEN = ("subscriber.added", "subscriber.removed", "labour.begun", "labour.announced", "labour.completed")
PATIENCE = 60.0  # seconds until a test gives up waiting; never what makes one pass
_fictional = itertools.count()


@dataclass
class Labour:
    id: UUID
    mother: dict[str, str]  # her authorization
    people: dict[str, str] = field(default_factory=dict)  # name → phone


class World:
    """`bus` is None for the embedded emulator as a process, or the address of another one."""

    def __init__(self, home: Path, urls: dict[str, str], bus: str | None) -> None:
        self._urls, self._bus = urls, bus
        self.settings = Settings(free_port_base(), home)
        self.settings.logs.mkdir(parents=True)
        (home / "heartbeats").mkdir()
        self._specs: dict[str, Process] = {process.name: process for process in processes(self.settings)}
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
            **{f"{service.upper()}_DATABASE_URL": url for service, url in self._urls.items()},
            **({"PUBSUB_EMULATOR_HOST": self._bus} if self._bus else {}),
            "SMS_LEASE_SECONDS": "3",
            "SMS_TIMEOUT_SECONDS": "1.5",
            "SMS_QUARANTINE_SECONDS": "2",
            "SMS_ASK_SECONDS": "0.2",
            "RELAY_POLL_SECONDS": "0.2",
            "RATE_LIMIT_PER_MINUTE": "1000000",
        }

    def start(self, *names: str, crash_at: str | None = None) -> None:
        """Returns when all are healthy; a process that is to crash may also be dead by then."""
        for name in names:
            self._spawn(name, crash_at)
        for name in names:
            spec = self._specs[name]
            self.until(lambda: self.is_dead(name) or self._healthy(spec), f"{name} is healthy")  # noqa: B023
            if self.is_dead(name) and not crash_at:
                raise AssertionError(f"{name} died:\n{self.settings.log(name).read_text()[-3000:]}")

    def _spawn(self, name: str, crash_at: str | None) -> None:
        spec = self._specs[name]
        environment = self.environment()
        if spec.heartbeat:
            spec.heartbeat.unlink(missing_ok=True)
            environment["HEARTBEAT_FILE"] = str(spec.heartbeat)
        if crash_at:
            environment["FERN_CRASH_AT"] = crash_at
        with self.settings.log(name).open("ab") as log:
            self._running[name] = subprocess.Popen(
                spec.command, cwd=PROJECT_ROOT, env=environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )

    def _healthy(self, spec: Process) -> bool:
        if spec.heartbeat:
            return spec.heartbeat.exists()
        try:
            return httpx.get(str(spec.health_url), timeout=2).is_success
        except httpx.TransportError:
            return False

    def is_dead(self, name: str) -> bool:
        return self._running[name].poll() is not None

    def kill(self, name: str) -> None:
        self._running[name].kill()
        self._running[name].wait(10)

    def stop(self, name: str) -> int:
        """As an orchestrator would; returns the exit code."""
        self._running[name].send_signal(signal.SIGTERM)
        return self._running[name].wait(20)

    def start_all(self) -> None:
        self.start("sms-sandbox", *([] if self._bus else ["pubsub"]))
        os.environ["PUBSUB_EMULATOR_HOST"] = self.environment()["PUBSUB_EMULATOR_HOST"]
        apply(Declared.load(), self.settings.environment()["PUBSUB_PROJECT_ID"])
        self.start(*SERVICES)

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
            connection = await asyncpg.connect(self._urls[service].replace("+asyncpg", ""))
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
        """From the committed row to the phone: outbox = published = claimed; one effect; news of every text."""
        rows = self.sql(
            "labour", "SELECT event_id, topic, published_at FROM outbox WHERE ordering_key = $1", str(labour.id)
        )
        assert all(row["published_at"] for row in rows)
        outbox = [row for row in rows if row["topic"] in TAKEN]
        claims = self.sql(
            "notification",
            "SELECT event_id, status FROM processed_event WHERE event_id = ANY($1)",
            [row["event_id"] for row in outbox],
        )
        assert Counter(row["event_id"] for row in claims) == Counter(row["event_id"] for row in outbox)
        assert {row["status"] for row in claims} == {"COMPLETED"}
        news = self.sql(
            "notification",
            "SELECT count(*) FROM outbox WHERE topic = 'notification.sent' AND ordering_key = $1",
            str(labour.id),
        )
        texts = sum(len(texts) for texts in self.texts(labour).values())
        assert news[0][0] == texts
        self.until(
            lambda: self.sql("labour", "SELECT count(*) FROM told WHERE labour_id = $1", labour.id)[0][0] == texts,
            "the Labour service knows of every text",
        )


BEGUN = "Ada is in labour. We will tell you when the baby is here."
COMPLETE = "The baby is here! Ada has given birth."


@contextmanager
def a_world(home: Path, urls: dict[str, str], bus: str | None = None) -> Iterator[World]:
    world = World(home, urls, bus)
    try:
        world.start_all()
        yield world
    finally:
        world.end()
