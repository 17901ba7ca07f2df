"""Whether this machine has a Docker engine that can run the system: one that answers, and that is recent enough."""

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from typing import Literal

from fern.errors import DockerSilent, DockerUnusable

ENGINE_TIMEOUT = 4.0
# For `start_interval` of a health check. An older engine refuses it only after everything is built.
OLDEST_API, OLDEST_ENGINE = (1, 44), "25"
OLDEST_COMPOSE = (2, 24, 4)  # for `!override` in infra/docker/google-bus.yml
EMBEDDED = "fern up --embedded"


@dataclass(frozen=True)
class Engine:
    state: Literal["missing", "silent", "old", "answering"]
    detail: str


def find_engine() -> Engine:
    """Look for a usable engine. Takes a few seconds at most: an engine that hangs accepts the connection and never answers."""
    if shutil.which("docker") is None:
        return Engine("missing", "there is no docker command")
    try:
        version = docker("version", "--format", "{{.Server.Version}} {{.Server.APIVersion}}")
        compose = docker("compose", "version", "--short")
    except subprocess.TimeoutExpired:
        where = os.environ.get("DOCKER_HOST", "its default socket")
        return Engine("silent", f"the Docker engine at {where} did not answer within {ENGINE_TIMEOUT:.0f} s")
    if version.returncode != 0:
        reason = (version.stderr.strip().splitlines() or ["docker version failed"])[-1]
        return Engine("missing", reason.removesuffix(" Is the docker daemon running?").rstrip("."))
    if compose.returncode != 0:
        return Engine("missing", "docker has no compose plugin")
    engine, _, api = version.stdout.strip().partition(" ")
    return judge(engine, api, compose.stdout.strip())


def judge(engine: str, api: str, compose: str) -> Engine:
    found = f"engine {engine}, compose {compose}"
    if _numbers(api) < OLDEST_API:
        return Engine("old", f"{found}: the engine is too old, version {OLDEST_ENGINE} or later is needed")
    if _numbers(compose) < OLDEST_COMPOSE:
        needed = ".".join(map(str, OLDEST_COMPOSE))
        return Engine("old", f"{found}: compose is too old, version {needed} or later is needed")
    return Engine("answering", found)


def require_engine(engine: Engine, *, why: str = "") -> None:
    """Raises unless the engine can be used. `why` is a sentence on what needs the engine, and what works without it."""
    if engine.state == "silent":
        raise DockerSilent(f"{engine.detail}. {why}".rstrip(), command=EMBEDDED)
    if engine.state != "answering":
        raise DockerUnusable(f"Docker cannot be used: {engine.detail}. {why}".rstrip(), command=EMBEDDED)


def docker(*arguments: str, timeout: float | None = None) -> subprocess.CompletedProcess[str]:
    """Run the docker command. Raises `subprocess.TimeoutExpired` after `timeout` seconds; None means ENGINE_TIMEOUT."""
    limit = ENGINE_TIMEOUT if timeout is None else timeout
    return subprocess.run(["docker", *arguments], capture_output=True, text=True, timeout=limit, check=False)


def _numbers(version: str) -> tuple[int, ...]:
    """The first two or three numbers of a version such as `v2.26.1-4`. A version without any counts as recent."""
    found = re.match(r"v?(\d+)\.(\d+)(?:\.(\d+))?", version)
    return tuple(int(number) for number in found.groups() if number) if found else (2**31,)
