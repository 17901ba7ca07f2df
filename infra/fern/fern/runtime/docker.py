"""Runs the system in containers, with Docker Compose."""

import os
import subprocess

from fern.delivery import delivered
from fern.errors import JobFailed, TopologyInvalid
from fern.overrides import Overrides
from fern.runtime import containers
from fern.runtime.engine import EMBEDDED
from fern.runtime.processes import processes
from fern.settings import PORTS, PROJECT_ROOT, Bus, Settings

START_TIMEOUT = 300
OTLP = "http://observability:4318"  # the service of docker-compose.yml that `--observe` starts
PROFILE = "observe"
FILES_WITH_GOOGLES_BUS = ("docker-compose.yml", "infra/docker/google-bus.yml")


def check_delivery(overrides: Overrides, bus: Bus) -> None:
    """Raises `TopologyInvalid` for push with Google's emulator, which sends no token: the push endpoint demands one."""
    if bus == "google" and any(delivery.is_pushed for delivery in delivered(overrides.delivery).values()):
        what = "push does not work with Google's emulator, whose push requests have no token."
        raise TopologyInvalid(what, command="fern up --bus ours")


def up(settings: Settings, *, build: bool = True) -> None:
    """Start all containers, as many of each service as `fern scale` asked for, and apply the topology."""
    check_delivery(Overrides.load(settings), settings.bus)
    if build:
        others = ["postgres", *(["pubsub"] if settings.bus == "google" else [])]
        others += ["observability"] if settings.observed else []
        _run(settings, "pull", "--quiet", "--policy", "missing", *others, failed="an image cannot be pulled")
        _run(settings, "build", failed="the images cannot be built (a base image may not be available)")
    wait = ("--wait", "--wait-timeout", str(START_TIMEOUT))
    started = _compose(settings, "up", "--detach", "--no-build", *wait, *_scales(settings))
    if started.returncode != 0:
        raise JobFailed("docker compose did not bring everything up; its output is above.", command="fern logs")


def down(settings: Settings, *, delete_data: bool) -> None:
    everything = ("--profile", PROFILE, "down")  # also what an earlier `up` started
    if _compose(settings, *everything, "--timeout", "15", *(["--volumes"] if delete_data else [])).returncode != 0:
        raise JobFailed("docker compose did not take everything down; its output is above.")


def logs(settings: Settings, process: str | None, lines: int, *, follow: bool) -> str:
    """The last lines of each container, after its name and " | ". With `follow`, compose prints them itself, as they come.

    Raises `JobFailed` if the engine does not show them.
    """
    which: list[str] = []
    if process:
        service, number = split_replica(process)
        which = [*(["--index", str(number)] if number > 1 else []), service]
    options = ["--follow"] if follow else ["--no-color"]
    shown = _compose(settings, "logs", "--tail", str(lines), *options, *which, capture=not follow)
    if shown.returncode != 0:
        raise JobFailed("docker compose shows no logs.", details=(shown.stderr or "").strip(), command="fern doctor")
    return shown.stdout or ""


def kill(settings: Settings, process: str) -> str:
    """Kill a process. Returns a clause on how it is started again."""
    killed = containers.kill(process)
    if process == "pubsub" and settings.bus == "google":
        # Google's emulator lost everything, so the engine may not restart it: it would look healthy and have no topics.
        containers.wait_until_ended(killed)
        again = _compose(settings, "up", "--detach", "--no-build", "topology")
        if again.returncode != 0:
            raise JobFailed(
                "the bus could not be started again; the output of docker compose is above.", command="fern up"
            )
        return "it was started again, and the topology is being applied"
    return "the engine starts it again"


def drain(settings: Settings, service: str) -> subprocess.CompletedProcess[str]:
    command = ("python", "-m", service, "consumer", "--drain")
    return _compose(settings, "run", "--rm", "--no-deps", f"{service}-consumer", *command, capture=True)


def database_url(settings: Settings, service: str) -> str:
    """The URL for a client on this machine, with the password that the job `databases` made. Raises `JobFailed` if PostgreSQL
    is not running.
    """
    path = f"/passwords/{service}/pgpass"
    shown = _compose(settings, "exec", "--no-TTY", "postgres", "cat", path, capture=True)
    if shown.returncode != 0:
        what = f"the password of {service} cannot be read from the container of PostgreSQL."
        raise JobFailed(what, details=shown.stderr.strip(), command="fern status")
    password = shown.stdout.strip().rpartition(":")[2]
    return settings.postgres.url(service, service, password)


def split_replica(process: str) -> tuple[str, int]:
    """`labour-relay-2` is the second container of the service labour-relay."""
    service, _, number = process.rpartition("-")
    return (service, int(number)) if number.isdigit() else (process, 1)


def _scales(settings: Settings) -> list[str]:
    """The options of `up` without which it would run one of each service. An idle one, such as a pushed consumer, gets 0."""
    wanted = {name: str(count) for name, count in Overrides.load(settings).replicas.items()}
    wanted |= {process.name: "0" for process in processes(settings) if process.idle}
    return [f"--scale={name}={count}" for name, count in sorted(wanted.items())]


def _run(settings: Settings, *arguments: str, failed: str) -> None:
    if _compose(settings, *arguments).returncode != 0:
        raise JobFailed(f"{failed}; the output of docker compose is above.", command=EMBEDDED)


def _compose(settings: Settings, *arguments: str, capture: bool = False) -> subprocess.CompletedProcess[str]:
    """Run compose. The published ports follow FERN_PORT_BASE: LABOUR_API_PORT, SMS_SANDBOX_PORT, POSTGRES_PORT and so on."""
    overrides = Overrides.load(settings)
    delivery = ",".join(f"{consumer}={how}" for consumer, how in overrides.delivery.items())
    ports = {f"{name.upper().replace('-', '_')}_PORT": str(settings.port(name)) for name in PORTS}
    files = (
        [argument for file in FILES_WITH_GOOGLES_BUS for argument in ("--file", file)]
        if settings.bus == "google"
        else []
    )
    observed = {"COMPOSE_PROFILES": PROFILE, "FERN_OTLP": OTLP} if settings.observed else {}
    return subprocess.run(
        ["docker", "compose", *files, *arguments],
        cwd=PROJECT_ROOT,
        env={
            **os.environ,
            **ports,
            **observed,
            "GRAFANA_PORT": str(settings.grafana_port),
            "FERN_DELIVERY": delivery,
            "FERN_REVISION": _revision(),
            **overrides.environment(),
        },
        capture_output=capture,
        text=True,
        check=False,
    )


def _revision() -> str:
    """The commit of the code, with "-dirty" after changes, for the label of the images; "unknown" without git."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        shown = subprocess.run(command, cwd=PROJECT_ROOT, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        return "unknown"
    return shown.stdout.strip() or "unknown"
