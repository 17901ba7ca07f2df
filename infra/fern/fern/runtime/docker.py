"""The same processes as containers, if a Docker engine is running."""

import json
import os
import shutil
import subprocess
from dataclasses import dataclass
from typing import Any, Literal

from fern.errors import DockerMissing, DockerSilent, JobFailed
from fern.settings import PORTS, PROJECT_ROOT, Settings

ENGINE_TIMEOUT = 4.0
START_TIMEOUT = 300


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


def up(settings: Settings) -> None:
    started = _compose(settings, "up", "--detach", "--build", "--wait", "--wait-timeout", str(START_TIMEOUT))
    if started.returncode != 0:
        raise JobFailed("docker compose did not bring everything up; its output is above.", command="fern logs")


def down(settings: Settings, *, delete_data: bool) -> None:
    if _compose(settings, "down", "--timeout", "15", *(["--volumes"] if delete_data else [])).returncode != 0:
        raise JobFailed("docker compose did not take everything down; its output is above.")


def logs(settings: Settings, process: str | None, lines: int, *, follow: bool) -> None:
    _compose(settings, "logs", "--tail", str(lines), *(["--follow"] if follow else []), *([process] if process else []))


def kill(settings: Settings, process: str) -> None:
    """An engine does not restart a container that was killed through itself, so `up` does; it also restores the bus's topics."""
    for arguments in (("kill", process), ("up", "--detach", "--no-build")):
        if _compose(settings, *arguments).returncode != 0:
            raise JobFailed(f"docker compose could not kill {process}; its output is above.", command="fern status")


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


def _docker(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=ENGINE_TIMEOUT, check=False)


def _compose(settings: Settings, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """The published ports follow FERN_PORT_BASE: LABOUR_API_PORT, SMS_SANDBOX_PORT, POSTGRES_PORT and so on."""
    ports = {f"{name.upper().replace('-', '_')}_PORT": str(settings.port(name)) for name in PORTS}
    return subprocess.run(
        ["docker", "compose", *arguments],
        cwd=PROJECT_ROOT,
        env={**os.environ, **ports},
        capture_output=capture,
        text=True,
        check=False,
    )
