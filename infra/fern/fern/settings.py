"""Where everything is on this machine, from two environment variables:

FERN_PORT_BASE  the first of ten consecutive ports (default 8400)
FERN_HOME       data, logs and sockets of the local run (default: .fern in the project)

A running system remembers its ports in FERN_HOME, so `FERN_PORT_BASE=9400 fern up` is followed by a plain `fern demo`.
"""

import json
import os
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from hashlib import sha256
from pathlib import Path
from typing import Literal

from fern.errors import FernError

PROJECT_ROOT = Path(__file__).resolve().parents[3]
DEFAULT_PORT_BASE = 8400
PROJECT_ID = "fern-local"
OPERATIONS_TOKEN = "local-operations"  # noqa: S105 (valid on this machine only)
TOKEN_SECRET = "local-secret-for-tokens-on-this-machine"  # noqa: S105 (valid on this machine only)
PORTS = {
    "console": 0,
    "labour-api": 1,
    "notification-api": 2,
    "sms-sandbox": 3,
    "pubsub": 4,
    "pubsub-http": 5,
    "postgres": 6,
}

SERVICES = ("labour", "notification")
CONSUMERS = {"notification": "notification", "labour": "labour", "statistics": "labour"}  # the service of each consumer
MOTHER = "ada"  # the user for whom `fern up` plans a first labour, and whose newest labour the console shows

Mode = Literal["embedded", "docker"]


class Address:
    """Of a PostgreSQL server. A role's password is its name."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    def dsn(self, database: str = "postgres", role: str = "postgres") -> str:
        return f"postgresql://{role}:{role}@{self.host}:{self.port}/{database}"

    def url(self, database: str, role: str) -> str:
        """The same for SQLAlchemy."""
        return self.dsn(database, role).replace("postgresql:", "postgresql+asyncpg:")


@dataclass(frozen=True)
class Settings:
    port_base: int
    home: Path

    @classmethod
    def load(cls) -> "Settings":
        home = Path(os.environ.get("FERN_HOME") or PROJECT_ROOT / ".fern").expanduser().absolute()
        base = os.environ.get("FERN_PORT_BASE") or str(_remembered(home).get("port_base", DEFAULT_PORT_BASE))
        if not (base.isdigit() and 1024 <= int(base) <= 65500):
            what = f"FERN_PORT_BASE is {base!r}; it must be a number from 1024 to 65500."
            raise FernError(what, command=f"export FERN_PORT_BASE={DEFAULT_PORT_BASE}")
        return cls(int(base), home)

    @property
    def mode(self) -> Mode | None:
        """How the system runs; None if it is down."""
        mode = _remembered(self.home).get("mode")
        return mode if mode in ("embedded", "docker") else None

    def remember(self, mode: Mode) -> None:
        self.home.mkdir(parents=True, exist_ok=True)
        _running_file(self.home).write_text(json.dumps({"mode": mode, "port_base": self.port_base}))

    def forget(self) -> None:
        _running_file(self.home).unlink(missing_ok=True)

    def use_local_bus(self, project: str) -> None:
        """Point Google's client at the emulator, unless this is another project or the environment has another address."""
        if project == PROJECT_ID and "PUBSUB_EMULATOR_HOST" not in os.environ:
            os.environ.update({"PUBSUB_EMULATOR_HOST": self.environment()["PUBSUB_EMULATOR_HOST"], **self.push()})

    def port(self, name: str) -> int:
        return self.port_base + PORTS[name]

    def url(self, name: str) -> str:
        return f"http://127.0.0.1:{self.port(name)}"

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

    @cached_property
    def supervisor_socket(self) -> Path:
        """In `home`, unless that makes it longer than the 100 or so characters of a unix socket's path."""
        beside = self.home / "supervisor.sock"
        if len(os.fsencode(beside)) <= 90:  # supervisord creates the socket under a longer, temporary name
            return beside
        return Path(tempfile.gettempdir()) / f"fern-{sha256(os.fsencode(self.home)).hexdigest()[:12]}.sock"

    def environment(self) -> dict[str, str]:
        """The variables of the services and the one-shot jobs. docker-compose.yml sets the same names."""
        return {
            "FERN_MODE": "local",
            "FERN_HOME": str(self.home),
            "FERN_PORT_BASE": str(self.port_base),
            "LABOUR_DATABASE_URL": self.postgres.url("labour", "labour"),
            "LABOUR_API_HOST": "127.0.0.1",
            "LABOUR_API_PORT": str(self.port("labour-api")),
            "NOTIFICATION_DATABASE_URL": self.postgres.url("notification", "notification"),
            "NOTIFICATION_API_HOST": "127.0.0.1",
            "NOTIFICATION_API_PORT": str(self.port("notification-api")),
            "PUBSUB_PROJECT_ID": PROJECT_ID,
            "PUBSUB_EMULATOR_HOST": f"127.0.0.1:{self.port('pubsub')}",
            "TWILIO_ACCOUNT_SID": "AC00000000000000000000000000000000",
            "TWILIO_AUTH_TOKEN": "local-twilio-token",
            "TWILIO_FROM": "+15005550006",
            "TWILIO_BASE_URL": self.url("sms-sandbox"),
            "PUBLIC_URL": self.url("notification-api"),
            "SMS_INBOUND_URL": self.url("notification-api") + "/webhooks/twilio/inbound",
            "OPERATIONS_TOKEN": OPERATIONS_TOKEN,
            "TOKEN_SECRET": TOKEN_SECRET,
            **self.push(),
        }

    def push(self) -> dict[str, str]:
        """The address for pushed messages, and what the API accepts there: tokens that our emulator has signed."""
        return {
            "PUSH_URL": self.url("notification-api") + "/pubsub/push",
            "PUSH_AUDIENCE": "notification-push",
            "PUSH_JWKS_URL": self.url("pubsub-http") + "/oauth2/v3/certs",
            "PUSH_SERVICE_ACCOUNT": f"push@{PROJECT_ID}.iam.gserviceaccount.com",
        }


def _running_file(home: Path) -> Path:
    return home / "running.json"


def _remembered(home: Path) -> dict[str, object]:
    with suppress(OSError, ValueError):
        if isinstance(remembered := json.loads(_running_file(home).read_text()), dict):
            return remembered
    return {}
