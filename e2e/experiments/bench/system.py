"""A whole system: every process of both services on databases of its own, and the stand-in for Twilio."""

import subprocess
import time
from dataclasses import dataclass
from itertools import count
from typing import Any
from uuid import uuid4

import httpx

from e2e.experiments.bench.environment import SUBSCRIPTION, Environment
from e2e.experiments.bench.stages.sms import start_stand_in
from e2e.support.ports import free_port_base
from e2e.support.waiting import until
from fern.tokens import make_token

WORKERS = (
    ("labour", "relay"),
    ("labour", "consumer"),
    ("labour", "statistics"),
    ("notification", "relay"),
    ("notification", "consumer"),
    ("notification", "dispatcher"),
)
_numbers = count(2000000)


@dataclass
class System:
    environment: Environment
    port: int
    stand_in: str
    processes: dict[str, subprocess.Popen[bytes]]

    def plan(self) -> tuple[str, dict[str, str]]:
        """A labour with two subscribers; returns the path of its completion and the headers of its mother's requests."""
        headers = {"Authorization": f"Bearer {make_token(f'mother-{uuid4()}')}"}
        with httpx.Client(
            base_url=f"http://127.0.0.1:{self.port}/api/v1/labours", headers=headers, timeout=30
        ) as client:

            def post(path: str, body: dict[str, str]) -> Any:
                return client.post(path, json=body).raise_for_status().json()

            labour = post("", {"mother_name": "Ada"})
            for name in ("Grace", "Edsger"):
                post(f"/{labour['id']}/subscribers", {"name": name, "phone": f"+1202{next(_numbers)}"})
        return f"/api/v1/labours/{labour['id']}/complete", headers | {"Idempotency-Key": f'"{uuid4()}"'}

    def until_idle(self) -> None:
        """Wait until no message waits in a subscription of the services, and a little more for what the last ones caused."""

        def waiting() -> int:
            return sum(waiting for name, waiting in self.environment.backlog().items() if name != SUBSCRIPTION)

        for _ in range(2):
            until(waiting, lambda unacked: unacked == 0, what="the bus is empty")
            time.sleep(0.3)


def start_system(environment: Environment) -> System:
    environment.declare()
    environment.purge()
    urls = {
        f"{service.upper()}_DATABASE_URL": environment.copy(environment.server.url(service, service), service)
        for service in ("labour", "notification")
    }
    stand_in, port = start_stand_in(environment), free_port_base()
    variables = {**urls, "TWILIO_BASE_URL": stand_in, "LABOUR_API_PORT": str(port)}
    variables["NOTIFICATION_API_PORT"] = str(port + 1)
    processes = {
        f"{service}-api": environment.process(
            "-m", service, "api", ready=f"http://127.0.0.1:{port + number}/health/ready", **variables
        )
        for number, service in enumerate(("labour", "notification"))
    }
    processes |= {f"{service}-{role}": environment.worker(service, role, **variables) for service, role in WORKERS}
    return System(environment, port, stand_in, processes)
