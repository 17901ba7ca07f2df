"""Where a stage is measured: a PostgreSQL that syncs to disk, our Pub/Sub emulator, and the processes that a stage starts."""

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import asyncpg
import httpx
from google.cloud.pubsub_v1 import SubscriberClient

from e2e.support.databases import connect
from e2e.support.waiting import until
from fern.errors import FernError
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, temporary_server
from fern.settings import PROJECT_ID, PROJECT_ROOT, SERVICES, Settings
from fern.topology import Declared, apply
from pubsub_emulator.server import EmulatorProcess, started

TOPIC = "labour.completed"
SUBSCRIPTION = f"bench.{TOPIC}"


class WorkMissing(FernError):
    """A design did not do the work that it was measured for, so its time means nothing."""

    exit_code = 24


class Child:
    """A program of ours that runs `measure` in a process of its own."""

    def __init__(self, module: str, log: Path, environment: Mapping[str, str]) -> None:
        self._log = log
        command = [sys.executable, "-m", "e2e.experiments.bench.program", f"e2e.experiments.bench.{module}", str(log)]
        self._process = subprocess.Popen(
            command, cwd=PROJECT_ROOT, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, **order: Any) -> dict[str, Any]:
        """Send an order and wait for its result."""
        self.tell(**order)
        return self.answer()

    def tell(self, **order: Any) -> None:
        assert self._process.stdin
        self._process.stdin.write(json.dumps(order) + "\n")
        self._process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        assert self._process.stdout
        line = self._process.stdout.readline()
        if not line:
            raise FernError("a measured program ended.", details=self._log.read_text()[-3000:])
        result: dict[str, Any] = json.loads(line)
        return result

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait(30)


@dataclass
class Environment:
    """`directory` is for logs and data. Everything that a stage starts ends with `stack`."""

    server: TemporaryServer
    bus: EmulatorProcess
    directory: Path
    stack: ExitStack
    _http: httpx.Client = field(default_factory=httpx.Client)

    # Databases

    def sql(self, url: str, statement: str, *arguments: Any) -> list[asyncpg.Record]:
        async def run() -> list[asyncpg.Record]:
            connection = await connect(url)
            try:
                if arguments or statement.lstrip().upper().startswith("SELECT"):
                    return list(await connection.fetch(statement, *arguments))
                await connection.execute(statement)
                return []
            finally:
                await connection.close()

        return asyncio.run(run())

    def new_database(self, name: str, *, template: str = "template1", owner: str = "postgres") -> str:
        """Create a database, mostly as a copy of another one; returns its URL for SQLAlchemy."""
        name = f"{name}_{uuid4().hex[:8]}"
        self.sql(self.server.dsn(), f"CREATE DATABASE {name} TEMPLATE {template} OWNER {owner}")
        return self.server.url(name, owner)

    def copy(self, url: str, name: str) -> str:
        """Copy a prepared database, so that every run starts with the same rows."""
        owner = "postgres" if name not in SERVICES else name
        copied = self.new_database(name, template=_name(url), owner=owner)
        self.sql(self.server.dsn(), "CHECKPOINT")  # or the copy's own pages would be written during the run
        return copied

    def drop(self, url: str) -> None:
        self.sql(self.server.dsn(), f"DROP DATABASE {_name(url)} WITH (FORCE)")

    def vacuum(self, url: str, *, pauses: bool = False) -> None:
        """Vacuum and analyse a database that was filled, as autovacuum does in time; with `pauses`, as slowly as autovacuum."""
        self.sql(self.server.dsn(), f"ALTER DATABASE {_name(url)} SET vacuum_cost_delay = {2 if pauses else 0}")
        self.sql(self.server.dsn(_name(url)), "VACUUM (ANALYZE)")

    # The bus

    def declare(self, topics: dict[str, list[str]] | None = None) -> None:
        """Create topics and their subscriptions; without `topics`, those of the services."""
        os.environ["PUBSUB_EMULATOR_HOST"] = self.bus.target
        declared = Declared.load()
        if topics is not None:
            declared = Declared.of({"subscription": declared.options, "topics": topics})
        apply(declared, PROJECT_ID)

    def count_published(self) -> None:
        """Create the subscription that keeps what is published, for a stage to count."""
        self.declare({TOPIC: [SUBSCRIPTION.removesuffix(f".{TOPIC}")]})
        self.purge()

    def backlog(self) -> dict[str, int]:
        """The number of messages that wait in each subscription."""
        items = self._http.get(f"{self.bus.http_url}/backlog").json()["items"]
        return {item["subscription"]: item["unacked"] for item in items}

    def waiting(self, subscription: str = SUBSCRIPTION) -> int:
        return self.backlog()[subscription]

    def purge(self) -> None:
        """Drop the messages of all subscriptions: nothing of a measurement may reach the next one."""
        os.environ["PUBSUB_EMULATOR_HOST"] = self.bus.target
        later = datetime.now(UTC) + timedelta(hours=1)
        with SubscriberClient() as subscriber:
            for name in (name for name, waiting in self.backlog().items() if waiting):
                path = f"projects/{PROJECT_ID}/subscriptions/{name}"
                subscriber.seek(request={"subscription": path, "time": later})

    # Processes

    def variables(self, **more: str) -> dict[str, str]:
        """The environment of every process: local settings, our bus, no telemetry, and no limit on rates."""
        local = Settings(1024, self.directory).environment()
        level = os.environ.get("LOG_LEVEL") or "INFO"
        limits = ("RATE_LIMIT_PER_MINUTE", "READ_LIMIT_PER_MINUTE", "SMS_PER_SECOND", "SMS_SEGMENTS_PER_NUMBER")
        rates = dict.fromkeys(limits, "1000000")
        alone = {f"{service.upper()}_OPERATORS_PORT": "0" for service in SERVICES}  # every port is for an API
        ours = {"PUBSUB_EMULATOR_HOST": self.bus.target, "LOG_LEVEL": level, "OTEL_EXPORTER_OTLP_ENDPOINT": ""}
        return {**os.environ, **local, **ours, **rates, **alone, **more}

    def child(self, module: str, **more: str) -> Child:
        log = self.directory / f"{module}-{uuid4().hex[:8]}.log"
        child = Child(module, log, self.variables(**more))
        self.stack.callback(child.close)
        return child

    def worker(self, service: str, role: str, **more: str) -> subprocess.Popen[bytes]:
        """Start `python -m SERVICE ROLE`, a process without a port, and wait until its event loop turns."""
        heartbeat = self.directory / f"{service}-{role}-{uuid4().hex[:8]}.heartbeat"
        process = self.process("-m", service, role, HEARTBEAT_FILE=str(heartbeat), **more)
        until(lambda: process.poll() is not None or heartbeat.exists(), what=f"{service} {role} runs")
        return process

    def process(self, *command: str, ready: str = "", **more: str) -> subprocess.Popen[bytes]:
        """Start `python COMMAND`; with `ready`, wait until that URL answers with success."""
        log = self.directory / f"{'-'.join(command)[-60:].replace('/', '-')}-{uuid4().hex[:8]}.log"
        with log.open("ab") as output:
            process = subprocess.Popen(
                [sys.executable, *command], cwd=PROJECT_ROOT, env=self.variables(**more), stdout=output, stderr=output
            )
        self.stack.callback(end, process)

        def is_ready() -> bool:
            if process.poll() is not None:
                raise FernError(f"{' '.join(command)} ended.", details=log.read_text()[-3000:])
            try:
                return self._http.get(ready, timeout=2).is_success
            except httpx.TransportError:
                return False

        if ready:
            until(is_ready, what=f"{ready} answers")
        return process


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process as an orchestrator does: SIGTERM, then SIGKILL."""
    process.terminate()
    try:
        process.wait(15)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(15)


def _name(url: str) -> str:
    return url.rpartition("/")[2]


@contextmanager
def on_server(server: TemporaryServer, directory: Path) -> Iterator[Environment]:
    """An environment on a running server with the services' migrated databases, and a new bus."""
    with ExitStack() as stack:
        bus = stack.enter_context(started(directory / "bus"))
        yield Environment(server, bus, directory, stack)


@contextmanager
def new_environment() -> Iterator[Environment]:
    """An environment on a new server that syncs every commit to disk."""
    with tempfile.TemporaryDirectory(prefix="fern-bench-") as name, temporary_server(Path(name), fsync=True) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        for service in SERVICES:
            migrate(service, server.url(service, f"{service}_owner"))
        with on_server(server, Path(name)) as environment:
            yield environment
