"""The same processes as containers, if a Docker engine is running."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from fern.delivery import delivered
from fern.errors import DockerMissing, DockerSilent, JobFailed, TopologyInvalid
from fern.overrides import Overrides
from fern.settings import PORTS, PROJECT_ROOT, Settings

ENGINE_TIMEOUT = 4.0
START_TIMEOUT = 300
PROJECT = "fernlabour"  # the name in docker-compose.yml, with which the names of containers begin


@dataclass(frozen=True)
class Engine:
    state: Literal["missing", "silent", "answering"]
    detail: str


def find_engine() -> Engine:
    """Takes a few seconds at most: an engine that hangs accepts the connection and never answers."""
    if shutil.which("docker") is None:
        return Engine("missing", "there is no docker command")
    try:
        version = _docker("version", "--format", "{{.Server.Version}}")
        compose = _docker("compose", "version", "--short")
    except subprocess.TimeoutExpired:
        where = os.environ.get("DOCKER_HOST", "its default socket")
        return Engine("silent", f"the Docker engine at {where} did not answer within {ENGINE_TIMEOUT:.0f} s")
    if version.returncode != 0:
        return Engine("missing", (version.stderr.strip().splitlines() or ["docker version failed"])[-1])
    if compose.returncode != 0:
        return Engine("missing", "docker has no compose plugin")
    return Engine("answering", f"engine {version.stdout.strip()}, compose {compose.stdout.strip()}")


def require_engine(engine: Engine) -> None:
    if engine.state == "silent":
        raise DockerSilent(f"{engine.detail}.", command="fern up --embedded")
    if engine.state == "missing":
        raise DockerMissing(f"Docker cannot be used: {engine.detail}.", command="fern up --embedded")


def check_delivery(overrides: Overrides) -> None:
    """Google's emulator pushes without a token, and the endpoint accepts no request without one."""
    if any(delivery.is_pushed for delivery in delivered(overrides.delivery).values()):
        what = "push does not work in Docker: the bus there is Google's emulator, whose push requests have no token."
        raise TopologyInvalid(what, command="fern up --embedded")


def up(settings: Settings, *, build: bool = True) -> None:
    """Also applies the topology, and starts as many of each service as `fern scale` asked for."""
    check_delivery(Overrides.load(settings))
    wait = ("--wait", "--wait-timeout", str(START_TIMEOUT))
    started = _compose(settings, "up", "--detach", "--build" if build else "--no-build", *wait, *_scales(settings))
    if started.returncode != 0:
        raise JobFailed("docker compose did not bring everything up; its output is above.", command="fern logs")


def down(settings: Settings, *, delete_data: bool) -> None:
    if _compose(settings, "down", "--timeout", "15", *(["--volumes"] if delete_data else [])).returncode != 0:
        raise JobFailed("docker compose did not take everything down; its output is above.")


def logs(settings: Settings, process: str | None, lines: int, *, follow: bool) -> None:
    which: list[str] = []
    if process:
        service, number = split_replica(process)
        which = [*(["--index", str(number)] if number > 1 else []), service]
    _compose(settings, "logs", "--tail", str(lines), *(["--follow"] if follow else []), *which)


def kill(settings: Settings, process: str) -> None:
    """An engine does not restart a container that was killed through itself, so `up` does; it also restores the bus's topics."""
    service, number = split_replica(process)
    killed = _docker("kill", f"{PROJECT}-{service}-{number}", timeout=60.0)
    if killed.returncode != 0:
        raise JobFailed(f"docker could not kill {process}.", details=killed.stderr.strip(), command="fern status")
    if _compose(settings, "up", "--detach", "--no-build", *_scales(settings)).returncode != 0:
        raise JobFailed(f"docker compose could not start {process} again; its output is above.", command="fern status")


def drain(settings: Settings, service: str) -> subprocess.CompletedProcess[str]:
    command = ("python", "-m", service, "consumer", "--drain")
    return _compose(settings, "run", "--rm", "--no-deps", f"{service}-consumer", *command, capture=True)


def split_replica(process: str) -> tuple[str, int]:
    """`labour-relay-2` is the second container of the service labour-relay."""
    service, _, number = process.rpartition("-")
    return (service, int(number)) if number.isdigit() else (process, 1)


def containers(settings: Settings) -> list[dict[str, Any]]:
    listing = _compose(settings, "ps", "--all", "--format", "json", capture=True)
    if listing.returncode != 0:
        raise JobFailed("docker compose could not list its containers.", details=listing.stderr.strip())
    return [json.loads(line) for line in listing.stdout.splitlines() if line.startswith("{")]


def last_check(container: str) -> str:
    """What the last health check of a container printed: the state of a worker, or why an API did not answer."""
    shown = _docker("inspect", "--format", "{{json .State.Health.Log}}", container)
    checks = json.loads(shown.stdout) if shown.returncode == 0 else []
    return (checks[-1]["Output"].strip().splitlines() or [""])[-1] if checks else ""


def _docker(*arguments: str, timeout: float = ENGINE_TIMEOUT) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=timeout, check=False)


def _scales(settings: Settings) -> list[str]:
    """Without them, `up` would go back to one of each."""
    return [f"--scale={name}={count}" for name, count in sorted(Overrides.load(settings).replicas.items())]


def _compose(settings: Settings, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """The published ports follow FERN_PORT_BASE: LABOUR_API_PORT, SMS_SANDBOX_PORT, POSTGRES_PORT and so on."""
    delivery = ",".join(f"{consumer}={how}" for consumer, how in Overrides.load(settings).delivery.items())
    ports = {f"{name.upper().replace('-', '_')}_PORT": str(settings.port(name)) for name in PORTS}
    return subprocess.run(
        ["docker", "compose", *arguments],
        cwd=PROJECT_ROOT,
        env={**os.environ, **ports, "FERN_DELIVERY": delivery},
        capture_output=capture,
        text=True,
        check=False,
    )
