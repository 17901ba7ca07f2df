"""The local system as a whole, with the same functions for both ways to run it: its processes, killing one, stopping all."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from fern.errors import FernError, NotRunning
from fern.output import Progress, make_console
from fern.overrides import Overrides
from fern.runtime import docker, health
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.settings import Settings

IDLE = "not started: "


@dataclass(frozen=True)
class ProcessStatus:
    """`health` is "healthy", "not started: " and the reason, or what is wrong. Docker's listing has neither pid, uptime nor
    restarts.
    """

    process: str
    state: str
    health: str
    pid: int | None = None
    uptime_seconds: int | None = None
    restarts: int | None = None

    @property
    def is_fine(self) -> bool:
        return self.health == "healthy" or self.health.startswith(IDLE)


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
            f"{IDLE}{process.idle}" if process.idle else health.problem(process, state, settings) or "healthy",
            pid=state.pid or None,
            uptime_seconds=int(time.time() - state.started_at) if state.pid else None,
            restarts=state.restarts,
        )
        for process in runtime.processes
        if process.name in states  # `fern scale` may be adding it
    ]


def _in_containers(settings: Settings) -> list[ProcessStatus]:
    """A one-shot job that has ended with exit code 0 counts as healthy."""
    ours = processes(settings)
    long_running = {process.name for process in ours}
    statuses = [ProcessStatus(one.name, "stopped", f"{IDLE}{one.idle}") for one in ours if one.idle]
    for container in docker.containers(settings):
        name, state = container["Service"], container["State"]
        number = container.get("Name", "").removeprefix(f"{docker.PROJECT}-{name}-")
        replica = f"{name}-{number}" if number.isdigit() and number != "1" else name
        is_done = name not in long_running and state == "exited" and container["ExitCode"] == 0
        health = "healthy" if is_done else container["Health"] or state
        if health == "unhealthy" and (why := docker.last_check(container["Name"])):
            health = f"unhealthy: {why[:300]}"
        statuses.append(ProcessStatus(replica, state, health))
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


def change(settings: Settings, overrides: Overrides, prepare: Callable[[], object] = bool) -> bool:
    """Keep the overrides and make a running system follow them. Returns False if nothing runs: the next `fern up` does it.

    `prepare` is called before processes are started and stopped, on a running system. (In Docker, `up` prepares everything.)
    """
    if settings.mode == "docker":
        docker.check_delivery(overrides)
        overrides.save(settings)
        docker.up(settings, build=False)
        return True
    supervisor = EmbeddedRuntime(settings).supervisor
    running = supervisor.is_running()
    if running and not supervisor.is_current():
        raise FernError(
            "the running system has other settings than these: start it with them first.", command="fern up"
        )
    overrides.save(settings)
    if running:
        prepare()
        EmbeddedRuntime(settings, Progress(make_console(quiet=True))).adjust()
    return running


def stop(settings: Settings, *, delete_data: bool) -> None:
    """`delete_data` deletes Docker's volumes; the data of the embedded runtime is left to the caller."""
    if settings.mode == "docker":
        docker.down(settings, delete_data=delete_data)
        settings.forget()
    EmbeddedRuntime(settings).down()
