"""The local system as a whole, with the same functions for both ways to run it: its processes, killing one, stopping all."""

import os
import signal
import time
from dataclasses import dataclass

from fern.errors import FernError, NotRunning
from fern.runtime import docker, health
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.settings import Settings


@dataclass(frozen=True)
class ProcessStatus:
    """`health` is "healthy", or what is wrong. Docker's listing has neither pid, uptime nor restarts."""

    process: str
    state: str
    health: str
    pid: int | None = None
    uptime_seconds: int | None = None
    restarts: int | None = None


def processes_now(settings: Settings) -> list[ProcessStatus]:
    """Empty if nothing runs. With Docker, the console runs on the host beside the containers."""
    in_docker = settings.mode == "docker"
    return _on_host(settings, only_console=in_docker) + (_in_containers(settings) if in_docker else [])


def _on_host(settings: Settings, *, only_console: bool) -> list[ProcessStatus]:
    runtime = EmbeddedRuntime(settings, only_console=only_console)
    if not runtime.supervisor.is_running():
        return []
    states = runtime.supervisor.states()
    return [
        ProcessStatus(
            process.name,
            (state := states[process.name]).state.lower(),
            health.problem(process, state, settings) or "healthy",
            pid=state.pid or None,
            uptime_seconds=int(time.time() - state.started_at) if state.pid else None,
            restarts=state.restarts,
        )
        for process in runtime.processes
    ]


def _in_containers(settings: Settings) -> list[ProcessStatus]:
    """A one-shot job that has ended with exit code 0 counts as healthy."""
    long_running = {process.name for process in processes(settings)}
    statuses = []
    for container in docker.containers(settings):
        name, state = container["Service"], container["State"]
        is_done = name not in long_running and state == "exited" and container["ExitCode"] == 0
        health = "healthy" if is_done else container["Health"] or state
        if health == "unhealthy" and (why := docker.last_check(container["Name"])):
            health = f"unhealthy: {why[:300]}"
        statuses.append(ProcessStatus(name, state, health))
    return statuses


def kill_process(settings: Settings, name: str) -> str:
    """Send it SIGKILL. Returns a sentence on what was done."""
    if settings.mode == "docker" and name != "console":
        docker.kill(settings, name)
        return f"killed {name}; the engine has started it again"
    runtime = EmbeddedRuntime(settings)
    if not runtime.supervisor.is_running():
        raise NotRunning("nothing is running.", command="make up")
    state = runtime.supervisor.states().get(name)
    if state is None or not state.pid:
        names = ", ".join(process.name for process in runtime.processes)
        raise FernError(f"there is no running process {name}; there are {names}.", command="fern status")
    os.kill(state.pid, signal.SIGKILL)
    return f"killed {name} (pid {state.pid}); the supervisor starts it again"


def stop(settings: Settings, *, delete_data: bool) -> None:
    """`delete_data` deletes Docker's volumes; the data of the embedded runtime is left to the caller."""
    if settings.mode == "docker":
        docker.down(settings, delete_data=delete_data)
        settings.forget()
    EmbeddedRuntime(settings).down()
