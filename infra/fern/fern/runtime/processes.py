"""The processes of the embedded runtime, and how to tell that each is healthy."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from fern.delivery import PUSH_ENDPOINTS, is_pushed_entirely
from fern.overrides import Overrides
from fern.runtime import postgres
from fern.settings import SECRETS, Settings

Stage = Literal["console", "database", "backing", "service"]
STAGES: tuple[Stage, ...] = ("console", "database", "backing", "service")


@dataclass(frozen=True)
class Process:
    name: str
    stage: Stage  # starts once the stage before is healthy, and stops before it
    command: tuple[str, ...]
    health_url: str | None = None
    heartbeat: Path | None = None  # a file to which a process without a port writes its state
    stop_signal: str = "TERM"
    user: str | None = None
    idle: str | None = None  # why it is not started
    environment: Mapping[str, str] = field(default_factory=dict)  # beside that of all processes; a change restarts it


def processes(settings: Settings) -> list[Process]:
    """All processes that run here, with the replicas that `fern scale` asked for: `labour-relay`, `labour-relay-2` and so on."""
    port, url, home = settings.port, settings.url, settings.home
    server = tuple(postgres.server_command(settings.postgres_data, port("postgres")))
    pubsub = _fern("pubsub", "serve", "--port", port("pubsub"), "--http-port", port("pubsub-http"))
    sms = _fern("sms", "serve", "--port", port("sms-sandbox"), "--data-dir", home / "sms")
    return [
        console(settings),
        Process("postgres", "database", server, stop_signal="INT", user=postgres.server_account()),
        Process("pubsub", "backing", (*pubsub, "--data-dir", str(home / "pubsub")), url("pubsub-http") + "/"),
        Process(
            "sms-sandbox",
            "backing",
            sms,
            url("sms-sandbox") + "/health",
            environment=_environment(settings, "sms-sandbox"),
        ),
        _api(settings, "labour-api"),
        *_workers(settings, "labour-relay"),
        *_workers(settings, "labour-consumer"),
        *_workers(settings, "labour-statistics"),
        _api(settings, "notification-api"),
        *_workers(settings, "notification-consumer"),
        *_workers(settings, "notification-dispatcher"),
        *_workers(settings, "notification-relay"),
    ]


def console(settings: Settings) -> Process:
    """The console starts first and stops last, so that it shows every start and stop. In Docker mode it runs on the host."""
    command = _fern("console", "serve", "--port", settings.port("console"))
    return Process("console", "console", command, settings.url("console") + "/health")


def _fern(*arguments: object) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("fern")), *map(str, arguments))


def _api(settings: Settings, name: str) -> Process:
    health_url, environment = settings.url(name) + "/health/ready", _environment(settings, name)
    return Process(name, "service", _service_command(name), health_url, environment=environment)


def _workers(settings: Settings, name: str) -> list[Process]:
    overrides = Overrides.load(settings)
    replicas = overrides.replicas.get(name, 1)
    idle = None if replicas else f"scaled to 0; `fern scale {name}=1` starts it"
    consumer = name.removesuffix("-consumer")
    if consumer in PUSH_ENDPOINTS and is_pushed_entirely(consumer, overrides.delivery):
        idle = f"its subscriptions are pushed to {PUSH_ENDPOINTS[consumer]}"
    names = [name, *(f"{name}-{number}" for number in range(2, replicas + 1))]
    command, environment = _service_command(name), _environment(settings, name)
    return [
        Process(one, "service", command, heartbeat=settings.heartbeat(one), idle=idle, environment=environment)
        for one in names
    ]


def _environment(settings: Settings, name: str) -> dict[str, str]:
    """The variables of one process: its secrets, which no other process gets, and what commands have changed."""
    secrets = {variable: value for variable, value in settings.environment(name).items() if variable in SECRETS}
    changed = name in ("notification-api", "notification-consumer")
    return secrets | (Overrides.load(settings).environment() if changed else {})


def _service_command(name: str) -> tuple[str, ...]:
    service, _, role = name.partition("-")
    return (sys.executable, "-m", service, role)
