"""Whether a process works: its port answers, or its heartbeat is recent and reports that it is working.

A worker writes its state into its heartbeat file (`servicekit.process`). One that waits for the database, the bus or a topic is
not healthy, and the reason is in the file.
"""

import json
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from fern.client import probe
from fern.errors import DiskFull, NeverHealthy
from fern.runtime import postgres
from fern.runtime.checks import free_bytes
from fern.runtime.processes import Process
from fern.runtime.supervisor import ProcessState, Supervisor, tail
from fern.settings import Settings

HEARTBEAT_MAX_AGE = 15.0
POLL_INTERVAL = 0.1
HOPELESS_RESTARTS = 2  # while waiting, after which a process counts as broken


def problem(process: Process, state: ProcessState, settings: Settings) -> str | None:
    """Why the process is not healthy, in a few words, or None if it is."""
    if state.state not in ("RUNNING", "STARTING"):
        return state.state.lower()
    if process.health_url:
        return probe(process.health_url)
    if process.heartbeat:
        return _heartbeat_problem(process.heartbeat, state)
    ready = [str(postgres.binary("pg_isready")), "-h", "127.0.0.1", "-p", str(settings.port("postgres")), "-t", "2"]
    return None if subprocess.run(ready, capture_output=True, check=False).returncode == 0 else "takes no connections"


def _heartbeat_problem(heartbeat: Path, state: ProcessState) -> str | None:
    beat_at = heartbeat.stat().st_mtime if heartbeat.exists() else 0.0
    if beat_at < state.started_at:  # the file of an earlier run does not count
        return "no heartbeat yet"
    age = time.time() - beat_at
    if age >= HEARTBEAT_MAX_AGE:
        return f"no heartbeat for {age:.0f} s"
    try:
        beat = json.loads(heartbeat.read_text())
        return None if beat["state"] == "working" else f"{beat['state']}: {beat['reason']}"
    except (ValueError, KeyError):
        return "its heartbeat cannot be read"


def wait_until_healthy(
    supervisor: Supervisor,
    processes: Sequence[Process],
    settings: Settings,
    timeout: float,
    on_healthy: Callable[[Process], None],
) -> None:
    waiting = list(processes)
    restarts_before = {name: state.restarts for name, state in supervisor.states().items()}
    deadline = time.monotonic() + timeout
    while waiting:
        states = supervisor.states()
        for process in list(waiting):
            state = states[process.name]
            why = problem(process, state, settings)
            if why is None:
                waiting.remove(process)
                on_healthy(process)
            elif state.state == "FATAL" or state.restarts - restarts_before[process.name] >= HOPELESS_RESTARTS:
                raise _never_healthy(process, "it keeps dying", settings)
            elif time.monotonic() > deadline:
                raise _never_healthy(process, f"after {timeout:.0f} s: {why}", settings)
        time.sleep(POLL_INTERVAL)


def _never_healthy(process: Process, why: str, settings: Settings) -> NeverHealthy | DiskFull:
    if (free := free_bytes(settings.home)) < postgres.ROOM_NEEDED:
        return DiskFull(settings.home, free)
    what = f"{process.name} does not become healthy ({why}). The end of its log:"
    return NeverHealthy(what, details=tail(settings.log(process.name)), command=f"fern logs {process.name}")
