"""The local system as a whole, with the same functions for both ways to run it: its processes, killing one, stopping all."""

import os
import signal
import time
from collections.abc import Callable
from dataclasses import dataclass

from fern.errors import FernError, NotRunning
from fern.output import Progress, make_console
from fern.overrides import Overrides
from fern.runtime import containers, docker, health
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.runtime.supervisor import ProcessState
from fern.settings import Settings

IDLE = "not started: "


@dataclass(frozen=True)
class ProcessStatus:
    """`health` is "healthy", "not started: " and the reason, or what is wrong. A container has no pid on this machine."""

    process: str
    state: str
    health: str
    pid: int | None = None
    uptime_seconds: int | None = None
    restarts: int | None = None

    @property
    def is_fine(self) -> bool:
        return self.health == "healthy" or self.health.startswith(IDLE)

    @property
    def is_held(self) -> bool:
        """Whether the process is down and stays down. supervisord restarts what exits; an engine leaves what it has killed."""
        return self.state == "stopped" and not self.is_fine


def processes_now(settings: Settings) -> list[ProcessStatus]:
    """The status of every process; empty if nothing runs. With Docker, the console runs on the host beside the containers."""
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
    """The status of every container. A one-shot job that has finished counts as healthy."""
    ours = processes(settings)
    long_running = {process.name for process in ours}
    statuses = [ProcessStatus(idle.name, "stopped", f"{IDLE}{idle.idle}") for idle in ours if idle.idle]
    for one in containers.containers():
        is_done = one.service not in long_running and one.has_finished
        health = one.health or one.state
        if one.state != "running":
            health = "healthy" if is_done else f"{one.state}, exit code {one.exit_code}"
        # As the embedded supervisor calls it. A job that has failed is not down: it must not be released like a process.
        state = "stopped" if one.state == "exited" and one.service in long_running else one.state
        if health == "unhealthy" and one.last_check:
            health = f"unhealthy: {one.last_check[:300]}"
        statuses.append(
            ProcessStatus(one.name, state, health, uptime_seconds=one.uptime_seconds, restarts=one.restarts)
        )
    return statuses


def kill_process(settings: Settings, name: str) -> str:
    """Kill a process with SIGKILL. Returns a sentence on what was done."""
    if _is_container(settings, name):
        return f"killed {name}; {docker.kill(settings, name)}"
    pid = _running(settings, name).pid
    os.kill(pid, signal.SIGKILL)
    return f"killed {name} (pid {pid}); the supervisor starts it again"


def hold_process(settings: Settings, name: str) -> str:
    """Kill a process and keep it down until it is released. Returns a sentence on what was done."""
    if name == "console":
        raise FernError("the console cannot be held down: it could not release itself.", command="fern kill console")
    if _is_container(settings, name):
        containers.hold(name)
    elif _running(settings, name).pid:
        EmbeddedRuntime(settings).supervisor.hold(name)
    return f"killed {name}; it stays down until it is released"


def release_process(settings: Settings, name: str) -> str:
    """Start a process that is held down. Returns a sentence on what was done."""
    if _is_container(settings, name):
        containers.release(name)
    elif not _state(settings, name).is_up:
        EmbeddedRuntime(settings).supervisor.start(name)
    return f"{name} is started again"


def crash_once(settings: Settings, name: str, point: str) -> str:
    """Make the process die the next time it reaches this fault point. Returns a sentence on what was done."""
    if _is_container(settings, name):
        containers.arm(name, f"once {point}")
    else:
        _running(settings, name)
        settings.crash_file(name).write_text(f"once {point}")
    return f"{name} dies the next time that it reaches {point}"


def disarm_crashes(settings: Settings) -> None:
    if settings.mode == "docker":
        containers.disarm()
    for process in processes(settings):
        settings.crash_file(process.name).unlink(missing_ok=True)


def _is_container(settings: Settings, name: str) -> bool:
    return settings.mode == "docker" and name != "console"


def _running(settings: Settings, name: str) -> ProcessState:
    if not (state := _state(settings, name)).pid:
        raise FernError(f"{name} is not running: it is {state.state.lower()}.", command="fern status")
    return state


def _state(settings: Settings, name: str) -> ProcessState:
    runtime = EmbeddedRuntime(settings)
    if not runtime.supervisor.is_running():
        raise NotRunning("nothing is running.", command="make up")
    if (state := runtime.supervisor.states().get(name)) is None:
        names = ", ".join(process.name for process in runtime.processes)
        raise FernError(f"there is no process {name}; there are {names}.", command="fern status")
    return state


def change(settings: Settings, overrides: Overrides, prepare: Callable[[], object] = bool) -> bool:
    """Keep the overrides and make a running system follow them. Returns False if nothing runs: the next `fern up` does it.

    `prepare` is called before processes are started and stopped, on a running system. (In Docker, `up` prepares everything.)
    """
    if settings.mode == "docker":
        docker.check_delivery(overrides, settings.bus)
        overrides.save(settings)
        docker.up(settings, build=False)
        return True
    supervisor = EmbeddedRuntime(settings).supervisor
    running = supervisor.is_running()
    if running and not supervisor.is_current():
        raise FernError(
            "the running system has other settings than this command: start it again with these settings first.",
            command="fern up",
        )
    overrides.save(settings)
    if running:
        prepare()
        EmbeddedRuntime(settings, Progress(make_console(quiet=True))).adjust()
    return running


def stop(settings: Settings, *, delete_data: bool) -> None:
    """Stop everything. `delete_data` also deletes Docker's volumes; the embedded runtime's data is left to the caller."""
    if settings.mode == "docker":
        docker.down(settings, delete_data=delete_data)
        settings.forget()
    EmbeddedRuntime(settings).down()
