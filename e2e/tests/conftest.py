import asyncio
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from conftest import fresh_database
from e2e.support.ports import free_port_base
from e2e.support.world import COMPLETE, Labour, World, a_world
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT, Settings


def databases(server: TemporaryServer) -> dict[str, str]:
    return {service: asyncio.run(fresh_database(server, service)) for service in ("labour", "notification")}


@pytest.fixture(scope="package")
def world(postgres: TemporaryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Every process, on the embedded bus; shared by tests that each leave it as they found it."""
    with a_world(tmp_path_factory.mktemp("world"), databases(postgres)) as world:
        yield world


@pytest.fixture(scope="package")
def google_world(
    postgres: TemporaryServer, google_bus: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The same on Google's emulator."""
    with a_world(tmp_path_factory.mktemp("google"), databases(postgres), google_bus) as world:
        yield world


class Load:
    """Births, one after the other, while a test does something else. The client says each thing until it is answered."""

    def __init__(self, world: World) -> None:
        self._world, self._enough = world, threading.Event()
        self.labours = list[Labour]()
        self._writing = threading.Thread(target=self._write, name="load")
        self._writing.start()

    def _write(self) -> None:
        while not self._enough.wait(0.2):
            try:
                labour = self._world.plan("Grace")
            except httpx.HTTPError:
                continue  # not answered, so nobody knows of it, and nobody waits for its end
            self.labours.append(labour)
            self._world.until(lambda: self._is_complete(labour), "a completion is answered")  # noqa: B023

    def _is_complete(self, labour: Labour) -> bool:
        with contextlib.suppress(httpx.HTTPError):
            self._world.complete(labour)
            return True
        return False

    def end(self) -> None:
        self._enough.set()
        self._writing.join()

    def assert_everyone_is_told_once(self) -> None:
        self.end()
        ids = [labour.id for labour in self.labours]
        states = "SELECT state FROM notification WHERE labour_id = ANY($1)"

        def settled() -> bool:
            found = [row["state"] for row in self._world.sql("notification", states, ids)]
            return len(found) == len(ids) and set(found) <= {"SENT", "DELIVERED"}

        assert ids
        self._world.until(settled, "everybody is told")
        for labour in self.labours:
            assert self._world.texts(labour) == {"Grace": [COMPLETE]}


@pytest.fixture
def load(world: World) -> Iterator[Load]:
    load = Load(world)
    yield load
    load.end()


class Fern:
    def __init__(self, home: str, port_base: int) -> None:
        self.port_base = port_base
        self.settings = Settings(port_base, Path(home))
        # Without what `make test ARGS=…` passes on: a make below it would take that for its own.
        ours = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "ARGS")}
        self.environment = {**ours, "FERN_HOME": home, "FERN_PORT_BASE": str(port_base)}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.run([str(Path(sys.executable).with_name("fern")), *arguments])

    def run(self, command: list[str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            command, env=self.environment, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=240, check=False
        )

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture(scope="package")
def fern() -> Iterator[Fern]:
    """The whole system as `make up` brings it up. Shared by tests that each leave it as they found it."""
    # Not below pytest's own directory: that is closed to the user PostgreSQL runs as when we are root.
    with tempfile.TemporaryDirectory(prefix="fern-up-") as home:
        fern = Fern(home, free_port_base())
        up = fern.run(["make", "up", "ARGS=--embedded"])
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            yield fern
        finally:
            down = fern.run(["make", "down"])
            assert down.returncode == 0, down.stderr
