"""Where everything is on this machine, from two environment variables:

FERN_PORT_BASE  the first of ten consecutive ports (default 8400)
FERN_HOME       data, logs and sockets of the local run (default: .fern in the project)

and which system the operators' commands work on (see `fern.contexts`):

FERN_CONTEXT    the name of the system, if there is no --context (default local: the one on this machine)
FERN_CONTEXTS   the file that declares all others (default ~/.config/fern/contexts.toml)

A running system remembers its ports in FERN_HOME, so `FERN_PORT_BASE=9400 fern up` is followed by a plain `fern demo`.
"""

import json
import os
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal

from fern import contexts
from fern.contexts import Context
from fern.errors import FernError

PROJECT_ROOT = Path(__file__).resolve().parents[3]
DEFAULT_PORT_BASE = 8400
PROJECT_ID = "fern-local"
OPERATOR_READ_TOKEN = "local-operator-read"  # noqa: S105 (valid on this machine only)
OPERATOR_WRITE_TOKEN = "local-operator-write"  # noqa: S105 (valid on this machine only)
TOKEN_SECRET = "local-secret-for-tokens-on-this-machine"  # noqa: S105 (valid on this machine only)
PORTS = {
    "console": 0,
    "labour-api": 1,
    "notification-api": 2,
    "sms-sandbox": 3,
    "pubsub": 4,
    "pubsub-http": 5,
    "postgres": 6,
    "labour-operators": 7,
    "notification-operators": 8,
}

GRAFANA_PORT = 9  # published with `fern up --observe` only

SERVICES = ("labour", "notification")
CONSUMERS = {"notification": "notification", "labour": "labour", "statistics": "labour"}  # the service of each consumer
SECRETS: Mapping[str, tuple[str, ...]] = {  # the processes and jobs that are given each of them
    "LABOUR_DATABASE_URL": ("labour-api", "labour-relay", "labour-consumer", "labour-statistics", "labour-migrations"),
    "NOTIFICATION_DATABASE_URL": (
        "notification-api",
        "notification-relay",
        "notification-consumer",
        "notification-dispatcher",
        "notification-migrations",
    ),
    "OPERATOR_READ_TOKENS": ("labour-api", "notification-api"),
    "OPERATOR_WRITE_TOKENS": ("labour-api", "notification-api"),
    "TOKEN_SECRET": ("labour-api",),
    "TWILIO_ACCOUNT_SID": ("notification-dispatcher",),
    "TWILIO_AUTH_TOKEN": ("notification-dispatcher", "notification-api", "sms-sandbox"),
    "TWILIO_FROM": ("notification-dispatcher",),
}
MOTHER = "ada"  # the user for whom `fern up` plans a first labour, and whose newest labour the console shows

Mode = Literal["embedded", "docker"]
Bus = Literal["ours", "google"]  # whose emulator runs in Docker


class Address:
    """The address of a PostgreSQL server. A role's password is its name, except in Docker."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def dsn(self, database: str = "postgres", role: str = "postgres", password: str | None = None) -> str:
        return f"postgresql://{role}:{password or role}@{self.host}:{self.port}/{database}"

    def url(self, database: str, role: str, password: str | None = None) -> str:
        """The URL of a database for SQLAlchemy."""
        return self.dsn(database, role, password).replace("postgresql:", "postgresql+asyncpg:")


@dataclass(frozen=True)
class Settings:
    port_base: int
    home: Path
    context: Context | None = None  # the system elsewhere that operators' commands work on

    @classmethod
    def load(cls) -> "Settings":
        home = Path(os.environ.get("FERN_HOME") or PROJECT_ROOT / ".fern").expanduser().absolute()
        base = os.environ.get("FERN_PORT_BASE") or str(_remembered(home).get("port_base", DEFAULT_PORT_BASE))
        if not (base.isdigit() and 1024 <= int(base) <= 65500):
            what = f"FERN_PORT_BASE is {base!r}; it must be a number from 1024 to 65500."
            raise FernError(what, command=f"export FERN_PORT_BASE={DEFAULT_PORT_BASE}")
        return cls(int(base), home, contexts.current())

    @property
    def mode(self) -> Mode | None:
        """How the system runs; None if it is down."""
        mode = _remembered(self.home).get("mode")
        return mode if mode in ("embedded", "docker") else None

    @property
    def bus(self) -> Bus:
        """Whose emulator is the bus. Without Docker it is always ours."""
        return "google" if _remembered(self.home).get("bus") == "google" else "ours"

    @property
    def observed(self) -> bool:
        """Whether Grafana runs beside the containers."""
        return bool(_remembered(self.home).get("observed"))

    def remember(self, mode: Mode, bus: Bus = "ours", *, observed: bool = False) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        running = {"mode": mode, "port_base": self.port_base, "bus": bus, "observed": observed}
        _running_file(self.home).write_text(json.dumps(running))

    @property
    def started_at(self) -> float:
        """When `fern up` last began, in seconds of the epoch. Ask only while the system is up."""
        return _running_file(self.home).stat().st_mtime

    def forget(self) -> None:
        _running_file(self.home).unlink(missing_ok=True)

    def use_bus(self) -> str:
        """Point Google's client at the bus of the context; locally, at the project PUBSUB_PROJECT_ID. Returns the project."""
        if self.context:
            return self.context.use_bus()
        project = os.environ.get("PUBSUB_PROJECT_ID", PROJECT_ID)
        self.use_local_bus(project)
        return project

    def use_local_bus(self, project: str) -> None:
        """Point Google's client at the emulator, unless this is another project or the environment has another address."""
        if project == PROJECT_ID and "PUBSUB_EMULATOR_HOST" not in os.environ:
            os.environ.update({"PUBSUB_EMULATOR_HOST": self.environment()["PUBSUB_EMULATOR_HOST"], **self.push()})

    def port(self, name: str) -> int:
        return self.port_base + PORTS[name]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port(name)}"

    @property
    def grafana_port(self) -> int:
        return self.port_base + GRAFANA_PORT

    @property
    def postgres(self) -> Address:
        return Address("127.0.0.1", self.port("postgres"))

    @property
    def postgres_data(self) -> Path:
        return self.home / "postgres"

    @property
    def overrides(self) -> Path:
        return self.home / "overrides.json"

    @property
    def logs(self) -> Path:
        return self.home / "logs"

    def log(self, process: str) -> Path:
        return self.logs / f"{process}.log"

    def heartbeat(self, process: str) -> Path:
        return self.home / "heartbeats" / process

    def crash_file(self, process: str) -> Path:
        """Names the fault point at which the process dies (`messaging.faults`). Usually there is no such file."""
        return self.home / "heartbeats" / f"{process}.crash"

    @cached_property
    def supervisor_socket(self) -> Path:
        """The path in `home`, or a shorter one elsewhere if it exceeds the 100 or so characters that a unix socket may have."""
        beside = self.home / "supervisor.sock"
        if len(os.fsencode(beside)) <= 90:  # supervisord creates the socket under a longer, temporary name
            return beside
        return Path(tempfile.gettempdir()) / f"fern-{sha256(os.fsencode(self.home)).hexdigest()[:12]}.sock"

    def environment(self, process: str | None = None) -> dict[str, str]:
        """The variables of all processes and one-shot jobs, or of one: those that are not secret, and its own secrets.
        docker-compose.yml sets the same names.
        """
        variables = self._variables()
        if process is None:
            return variables
        service, _, role = process.partition("-")
        if role == "migrations":
            variables[f"{service.upper()}_DATABASE_URL"] = self.postgres.url(service, f"{service}_owner")
        return own(variables, process)

    def _variables(self) -> dict[str, str]:
        return {
            "FERN_MODE": "local",
            "FERN_HOME": str(self.home),
            "FERN_PORT_BASE": str(self.port_base),
            "LOG_LEVEL": os.environ.get("LOG_LEVEL") or "DEBUG",  # a line for each event
            "LABOUR_DATABASE_URL": self.postgres.url("labour", "labour"),
            "LABOUR_API_HOST": "127.0.0.1",
            "LABOUR_API_PORT": str(self.port("labour-api")),
            "LABOUR_OPERATORS_HOST": "127.0.0.1",
            "LABOUR_OPERATORS_PORT": str(self.port("labour-operators")),
            "NOTIFICATION_DATABASE_URL": self.postgres.url("notification", "notification"),
            "NOTIFICATION_API_HOST": "127.0.0.1",
            "NOTIFICATION_API_PORT": str(self.port("notification-api")),
            "NOTIFICATION_OPERATORS_HOST": "127.0.0.1",
            "NOTIFICATION_OPERATORS_PORT": str(self.port("notification-operators")),
            "PUBSUB_PROJECT_ID": PROJECT_ID,
            "PUBSUB_EMULATOR_HOST": f"127.0.0.1:{self.port('pubsub')}",
            "TWILIO_ACCOUNT_SID": "AC00000000000000000000000000000000",
            "TWILIO_AUTH_TOKEN": "local-twilio-token",
            "TWILIO_FROM": "+15005550006",
            "TWILIO_BASE_URL": self.url("sms-sandbox"),
            "PUBLIC_URL": self.url("notification-api"),
            "SMS_INBOUND_URL": self.url("notification-api") + "/webhooks/twilio/inbound",
            "OPERATOR_READ_TOKENS": f"local:{OPERATOR_READ_TOKEN}",
            "OPERATOR_WRITE_TOKENS": f"local:{OPERATOR_WRITE_TOKEN}",
            "TOKEN_SECRET": TOKEN_SECRET,
            **self.telemetry(),
            **self.push(),
        }

    def telemetry(self) -> dict[str, str]:
        """Traces go to the console twice a second, or to the endpoint that this command was started with."""
        return {
            "OTEL_EXPORTER_OTLP_ENDPOINT": os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT") or self.url("console"),
            "OTEL_BSP_SCHEDULE_DELAY": os.environ.get("OTEL_BSP_SCHEDULE_DELAY") or "500",
        }

    def push(self) -> dict[str, str]:
        """The address for pushed messages, and what the API accepts there: tokens that our emulator has signed."""
        return {
            "PUSH_URL": self.url("notification-api") + "/pubsub/push",
            "PUSH_AUDIENCE": "notification-push",
            "PUSH_ISSUER": self.url("pubsub-http"),
            "PUSH_JWKS_URL": self.url("pubsub-http") + "/oauth2/v3/certs",
            "PUSH_SERVICE_ACCOUNT": f"push@{PROJECT_ID}.iam.gserviceaccount.com",
        }


def own(variables: Mapping[str, str], process: str) -> dict[str, str]:
    """The variables without the secrets of other processes."""
    return {name: value for name, value in variables.items() if process in SECRETS.get(name, (process,))}


def _running_file(home: Path) -> Path:
    return home / "running.json"


def _remembered(home: Path) -> dict[str, object]:
    with suppress(OSError, ValueError):
        if isinstance(remembered := json.loads(_running_file(home).read_text()), dict):
            return remembered
    return {}
