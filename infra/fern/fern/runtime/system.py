"""`fern down`, `reset`, `status`, `logs`, `kill`: the daily handling, the same in both modes."""

import os
import signal
import time
from dataclasses import dataclass

from fern.errors import FernError, NotRunning
from fern.runtime import docker, health
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.runtime.progress import Progress, make_console
from fern.settings import Settings

# All that a run leaves in its home; `reset` deletes nothing where it finds anything else.
OURS = ("heartbeats", "logs", "postgres", "pubsub", "running.json", "sms", "supervisor")
FOLLOW_INTERVAL = 0.2


def stop(settings: Settings, *, delete_data: bool) -> None:
    if settings.mode == "docker":
        docker.down(settings, delete_data=delete_data)
        settings.forget()
    EmbeddedRuntime(settings, Progress(make_console())).down()


@dataclass(frozen=True)
class Row:
    process: str
    state: str
    pid: int | None
    uptime_seconds: int | None
    restarts: int | None
    health: str


def processes_now(settings: Settings) -> list[Row]:
    """None if nothing runs. With Docker, the console still runs beside the containers."""
    in_docker = settings.mode == "docker"
    return _host_rows(settings, only_console=in_docker) + (_docker_rows(settings) if in_docker else [])


def _host_rows(settings: Settings, *, only_console: bool) -> list[Row]:
    runtime = EmbeddedRuntime(settings, Progress(make_console()), only_console=only_console)
    if not runtime.supervisor.is_running():
        return []
    states = runtime.supervisor.states()
    return [
        Row(
            process=process.name,
            state=(state := states[process.name]).state.lower(),
            pid=state.pid or None,
            uptime_seconds=int(time.time() - state.started_at) if state.pid else None,
            restarts=state.restarts,
            health=health.problem(process, state, settings) or "healthy",
        )
        for process in runtime.processes
    ]


def _docker_rows(settings: Settings) -> list[Row]:
    """An engine tells neither pid nor restarts in its listing; a one-shot job that went well counts as healthy."""
    long_running = {process.name for process in processes(settings)}
    return [
        Row(
            process=container["Service"],
            state=container["State"],
            pid=None,
            uptime_seconds=None,
            restarts=None,
            health="healthy"
            if container["Service"] not in long_running
            and container["State"] == "exited"
            and container["ExitCode"] == 0
            else container["Health"] or container["State"],
        )
        for container in docker.containers(settings)
    ]


def kill_process(settings: Settings, name: str) -> str:
    """What was done, in words."""
    if settings.mode == "docker" and name != "console":
        docker.kill(settings, name)
        return f"killed {name}; the engine has started it again"
    runtime = EmbeddedRuntime(settings, Progress(make_console()))
    if not runtime.supervisor.is_running():
        raise NotRunning("nothing is running.", command="make up")
    state = runtime.supervisor.states().get(name)
    if state is None or not state.pid:
        names = ", ".join(p.name for p in runtime.processes)
        raise FernError(f"there is no running process {name}; there are {names}.", command="fern status")
    os.kill(state.pid, signal.SIGKILL)
    return f"killed {name} (pid {state.pid}); the supervisor starts it again"
