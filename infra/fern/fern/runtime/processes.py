"""The processes of the embedded runtime, and how to tell that each is healthy."""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from fern.runtime import postgres
from fern.settings import Settings

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


def processes(settings: Settings) -> list[Process]:
    port, url, home = settings.port, settings.url, settings.home
    server = tuple(postgres.server_command(settings.postgres_data, port("postgres")))
    pubsub = _fern("pubsub", "serve", "--port", port("pubsub"), "--http-port", port("pubsub-http"))
    sms = _fern("sms", "serve", "--port", port("sms-sandbox"), "--data-dir", home / "sms")
    return [
        console(settings),
        Process("postgres", "database", server, stop_signal="INT", user=postgres.server_account()),
        Process("pubsub", "backing", (*pubsub, "--data-dir", str(home / "pubsub")), url("pubsub-http") + "/"),
        Process("sms-sandbox", "backing", sms, url("sms-sandbox") + "/health"),
        _api(settings, "labour-api"),
        _worker(settings, "labour-relay"),
        _worker(settings, "labour-consumer"),
        _worker(settings, "labour-statistics"),
        _api(settings, "notification-api"),
        _worker(settings, "notification-consumer"),
        _worker(settings, "notification-dispatcher"),
        _worker(settings, "notification-relay"),
    ]


def console(settings: Settings) -> Process:
    """Starts first and stops last, so that it shows all the others start and stop. Also runs on the host in Docker mode."""
    command = _fern("console", "serve", "--port", settings.port("console"))
    return Process("console", "console", command, settings.url("console") + "/health")


def _fern(*arguments: object) -> tuple[str, ...]:
    return (str(Path(sys.executable).with_name("fern")), *map(str, arguments))


def _api(settings: Settings, name: str) -> Process:
    return Process(name, "service", _service_command(name), settings.url(name) + "/health/ready")


def _worker(settings: Settings, name: str) -> Process:
    return Process(name, "service", _service_command(name), heartbeat=settings.heartbeat(name))


def _service_command(name: str) -> tuple[str, ...]:
    service, _, role = name.partition("-")
    return (sys.executable, "-m", service, role)
