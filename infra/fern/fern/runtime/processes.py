"""The processes of the embedded runtime, and how each shows that it is healthy."""

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
    stage: Stage  # a stage is started once the one before is healthy, and stopped before it
    command: tuple[str, ...]
    health_url: str | None = None
    heartbeat: Path | None = None  # touched by a process that has no port
    stop_signal: str = "TERM"
    user: str | None = None


def processes(settings: Settings) -> list[Process]:
    fern = str(Path(sys.executable).with_name("fern"))
    data = settings.home
    ports = {name: str(settings.port(name)) for name in ("sms-sandbox", "pubsub", "pubsub-http")}
    pubsub = (fern, "pubsub", "serve", "--port", ports["pubsub"], "--http-port", ports["pubsub-http"])
    sms = (fern, "sms", "serve", "--port", ports["sms-sandbox"])
    return [
        console(settings),
        Process(
            "postgres",
            "database",
            tuple(postgres.server_command(settings.postgres_data, settings.port("postgres"))),
            stop_signal="INT",
            user=postgres.server_account(),
        ),
        Process(
            "pubsub",
            "backing",
            (*pubsub, "--data-dir", str(data / "pubsub")),
            health_url=settings.url("pubsub-http") + "/",
        ),
        Process(
            "sms-sandbox",
            "backing",
            (*sms, "--data-dir", str(data / "sms")),
            health_url=settings.url("sms-sandbox") + "/health",
        ),
        _api(settings, "labour-api"),
        _worker(settings, "labour-relay"),
        _worker(settings, "labour-consumer"),
        _api(settings, "notification-api"),
        _worker(settings, "notification-consumer"),
        _worker(settings, "notification-dispatcher"),
        _worker(settings, "notification-relay"),
    ]


def console(settings: Settings) -> Process:
    """First to start and last to stop, so that it can show all the others come and go; on the host in Docker mode, too."""
    command = (str(Path(sys.executable).with_name("fern")), "console", "serve", "--port", str(settings.port("console")))
    return Process("console", "console", command, health_url=settings.url("console") + "/health")


def jobs() -> dict[str, list[str]]:
    """What has to be done once, after the backing processes are healthy and before the services start."""
    alembic = [sys.executable, "-m", "alembic", "-c"]
    return {
        "labour migrations": [*alembic, "services/labour/alembic.ini", "upgrade", "head"],
        "notification migrations": [*alembic, "services/notification/alembic.ini", "upgrade", "head"],
        "topics and subscriptions": [str(Path(sys.executable).with_name("fern")), "topology", "apply"],
    }


def _api(settings: Settings, name: str) -> Process:
    return Process(name, "service", _service_command(name), health_url=settings.url(name) + "/health/ready")


def _worker(settings: Settings, name: str) -> Process:
    return Process(name, "service", _service_command(name), heartbeat=settings.heartbeat(name))


def _service_command(name: str) -> tuple[str, ...]:
    service, _, role = name.partition("-")
    return (sys.executable, "-m", service, role)
