"""The system as a user starts it: `make up` in a directory of its own, and the `fern` command."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import asyncpg
from anyio.from_thread import start_blocking_portal
from rich.console import Console

from e2e.support.ports import free_port_base
from fern.output import Progress
from fern.runtime.embedded import EmbeddedRuntime
from fern.settings import DEFAULT_PORT_BASE, PROJECT_ROOT, Settings

FERN = str(Path(sys.executable).with_name("fern"))


class Installation:
    def __init__(self, home: str, port_base: int) -> None:
        self.port_base = port_base
        self.settings = Settings(port_base, Path(home))
        # A `make` below is a user's own: it inherits neither the options of the `make test ARGS=…` above it nor its level,
        # with which it would print the directories that it enters and leaves.
        of_make = ("MAKEFLAGS", "MFLAGS", "MAKELEVEL", "ARGS")
        inherited = {name: value for name, value in os.environ.items() if name not in of_make}
        self.environment = {**inherited, "FERN_HOME": home, "FERN_PORT_BASE": str(port_base)}

    def fern(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run([FERN, *arguments])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=900, check=False
        )

    def adapt(self, text: str) -> str:
        """Replace the ports and the path of `fern` in a document by those of this installation."""
        for port in range(DEFAULT_PORT_BASE, DEFAULT_PORT_BASE + 10):
            text = text.replace(f":{port}", f":{port - DEFAULT_PORT_BASE + self.port_base}")
        return text.replace(".venv/bin/fern", FERN)

    @contextmanager
    def stopped(self, *processes: str) -> Iterator[None]:
        """Stop processes during the block, and start them again."""
        supervisor = EmbeddedRuntime(self.settings, Progress(Console(quiet=True))).supervisor
        supervisor.stop(processes)
        try:
            yield
        finally:
            for process in processes:
                supervisor.start(process)

    def execute(self, statement: str, service: str = "labour") -> list[asyncpg.Record]:
        """Read or change the database of a service, also while an event loop runs in this thread."""

        async def run() -> list[asyncpg.Record]:
            connection = await asyncpg.connect(self.settings.postgres.dsn(service, service))
            rows = await connection.fetch(statement)
            await connection.close()
            return list(rows)

        with start_blocking_portal() as portal:
            return portal.call(run)

    def json(self, *arguments: str) -> Any:
        return json.loads(self.fern(*arguments, "--json").stdout)


@contextmanager
def running_installation() -> Iterator[Installation]:
    """Start the embedded system; stop it and delete its data afterwards."""
    # The user that PostgreSQL runs as when we are root cannot enter pytest's own temporary directories.
    with tempfile.TemporaryDirectory(prefix="fern-up-") as home:
        installation = Installation(home, free_port_base())
        up = installation.run(["make", "up", "ARGS=--embedded"])
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            yield installation
        finally:
            down = installation.run(["make", "down"])
            assert down.returncode == 0, down.stderr
