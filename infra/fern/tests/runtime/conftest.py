import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from rich.console import Console

from e2e.support.ports import free_port_base
from fern.output import Progress
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import Process
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("FERN_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("FERN_PORT_BASE", str(free_port_base()))
    return Settings.load()


WORKER = """
import os, pathlib, time
heartbeat = pathlib.Path(os.environ["HEARTBEAT_FILE"])
while True:
    heartbeat.with_suffix(".new").write_text('{"state": "working", "reason": ""}')
    heartbeat.with_suffix(".new").replace(heartbeat)
    time.sleep(0.1)
"""


@pytest.fixture
def runtime(settings: Settings, tmp_path: Path) -> Iterator[EmbeddedRuntime]:
    """The real runtime around one process of the real shape: a worker that beats its heart and does nothing else."""
    runtime = EmbeddedRuntime(settings, Progress(Console(quiet=True)))
    (script := tmp_path / "worker.py").write_text(WORKER)
    worker = Process("worker", "service", (sys.executable, str(script)), heartbeat=settings.heartbeat("worker"))
    runtime.processes = [worker]
    runtime.supervisor = Supervisor(settings, [worker])
    yield runtime
    runtime.down()


@pytest.fixture
def fake_docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Puts a `docker` command with the given shell script before any other."""

    def install(script: str) -> None:
        directory = tmp_path / "bin"
        directory.mkdir()
        (directory / "docker").write_text(f"#!/bin/sh\n{script}\n")
        (directory / "docker").chmod(0o755)
        monkeypatch.setenv("PATH", f"{directory}:/usr/bin:/bin")

    return install
