"""The containers of the system, as the engine sees them: their state, health, age and restarts, and killing one."""

import json
import os
import shlex
import subprocess
import time
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from fern.errors import DockerSilent, FernError, JobFailed
from fern.runtime.engine import EMBEDDED, docker

DEFAULT_PROJECT = "fernlabour"  # the name in docker-compose.yml
CRASH_FILE = "/tmp/crash"  # noqa: S108  (in a container; FERN_CRASH_AT in docker-compose.yml)
LISTING_TIMEOUT = 20.0
CRASHED = 137  # the exit code of a command in a container that ended by SIGKILL


@dataclass(frozen=True)
class Container:
    id: str
    service: str
    number: int
    state: str  # created, running, restarting, exited, paused, dead
    health: str  # starting, healthy, unhealthy; empty without a check
    last_check: str  # what the last check printed: the state of a worker, or why an API did not answer
    exit_code: int
    started_at: float
    restarts: int  # by the engine, since the container was created or started by hand

    @property
    def name(self) -> str:
        """`labour-relay` is the first container of that service, `labour-relay-2` the second."""
        return self.service if self.number == 1 else f"{self.service}-{self.number}"

    @property
    def uptime_seconds(self) -> int | None:
        return max(0, int(time.time() - self.started_at)) if self.state == "running" else None

    @property
    def has_finished(self) -> bool:
        return self.state == "exited" and self.exit_code == 0


def project() -> str:
    return os.environ.get("COMPOSE_PROJECT_NAME") or DEFAULT_PROJECT


def containers() -> list[Container]:
    """The containers that `up` started, by name. Raises `JobFailed` if the engine does not list them."""
    labels = (f"com.docker.compose.project={project()}", "com.docker.compose.oneoff=False")
    filters = [argument for label in labels for argument in ("--filter", f"label={label}")]
    listed = _ask("ps", "--all", "--quiet", "--no-trunc", *filters)
    if listed.returncode != 0:
        what = "the Docker engine does not list its containers."
        raise JobFailed(what, details=listed.stderr.strip(), command="fern doctor")
    ids = listed.stdout.split()
    inspected = _ask("inspect", *ids).stdout if ids else "[]"
    return sorted(map(parse, json.loads(inspected or "[]")), key=lambda one: (one.service, one.number))


def parse(inspected: dict[str, Any]) -> Container:
    """One entry of `docker inspect`."""
    labels, state = inspected["Config"]["Labels"], inspected["State"]
    health = state.get("Health") or {}
    checks = health.get("Log") or []
    printed = checks[-1]["Output"].strip().splitlines() if checks else []
    return Container(
        id=inspected["Id"],
        service=labels["com.docker.compose.service"],
        number=int(labels["com.docker.compose.container-number"]),
        state=state["Status"],
        health=health.get("Status", ""),
        last_check=printed[-1] if printed else "",
        exit_code=state["ExitCode"],
        started_at=datetime.fromisoformat(state["StartedAt"]).timestamp(),
        restarts=inspected["RestartCount"],
    )


def kill(name: str) -> Container:
    """End all processes of one container with SIGKILL, from inside: then the engine sees a crash and restarts it.

    (It does not restart a container that `docker kill` ended.) Returns the container as it was. Raises `FernError` if there is no
    such running container.
    """
    container = _find(name)
    if container.has_finished:
        raise FernError(f"{name} is a job that has finished: there is nothing to kill.", command="fern status")
    if container.state != "running":
        raise FernError(f"{name} is not running: it is {container.state}.", command="fern status")
    killed = _ask("exec", container.id, "sh", "-c", "kill -9 -1")
    if killed.returncode not in (0, CRASHED):
        raise JobFailed(f"{name} could not be killed.", details=killed.stderr.strip(), command="fern status")
    return container


def wait_until_ended(container: Container) -> None:
    _ask("wait", container.id)


def hold(name: str) -> None:
    """Kill a container and keep it down: the engine does not restart one that was killed through itself."""
    _must(f"{name} could not be killed.", "kill", _find(name).id)


def release(name: str) -> None:
    _must(f"{name} could not be started.", "start", _find(name).id)


def arm(name: str, fault: str) -> None:
    """Write the file in which a process looks for the fault point at which to die. A restart of the container deletes it."""
    _must(
        f"{name} could not be armed.",
        "exec",
        _find(name).id,
        "sh",
        "-c",
        f"printf %s {shlex.quote(fault)} >{CRASH_FILE}",
    )


def disarm() -> None:
    for container in containers():
        if container.state == "running":
            _ask("exec", container.id, "rm", "-f", CRASH_FILE)


def _find(name: str) -> Container:
    found = {container.name: container for container in containers()}
    if name not in found:
        raise FernError(f"there is no container {name}; there are {', '.join(found)}.", command="fern status")
    return found[name]


def _must(failed: str, *arguments: str) -> None:
    done = _ask(*arguments)
    if done.returncode != 0:
        raise JobFailed(failed, details=done.stderr.strip(), command="fern status")


def _ask(*arguments: str) -> subprocess.CompletedProcess[str]:
    try:
        return docker(*arguments, timeout=LISTING_TIMEOUT)
    except FileNotFoundError as error:
        raise JobFailed("the docker command was not found.", command="fern doctor") from error
    except subprocess.TimeoutExpired as error:
        raise DockerSilent(
            f"the Docker engine did not answer within {LISTING_TIMEOUT:.0f} s.", command=EMBEDDED
        ) from error
