"""The settings of the workers that both services have. A process reads only the settings it needs, so it needs no other secret.

`<SERVICE>_DATABASE_URL` and PUBSUB_PROJECT_ID are described with the settings of each service. Of the workers, only a relay reads

RELAY_POLL_SECONDS    seconds between polls of the relay when no wake-up arrives (1)
RETENTION_DAYS        days for which published events and claims are kept (90); the APIs read it, too
REPLAY_HORIZON_DAYS   days that a replay may go back (30); the APIs read it, too
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass

from servicekit.settings import Environment


@dataclass(frozen=True, slots=True)
class WorkerSettings:
    """The settings of a consumer."""

    database_url: str
    project_id: str

    @classmethod
    def load(cls, service: str, variables: Mapping[str, str] = os.environ) -> "WorkerSettings":
        environment = Environment(variables)
        settings = cls(load_database_url(environment, service), load_project(environment))
        environment.check()
        return settings


@dataclass(frozen=True, slots=True)
class RelaySettings:
    database_url: str
    project_id: str
    relay_poll_seconds: float
    retention_days: int
    replay_horizon_days: int

    @classmethod
    def load(cls, service: str, variables: Mapping[str, str] = os.environ) -> "RelaySettings":
        environment = Environment(variables)
        settings = cls(
            database_url=load_database_url(environment, service),
            project_id=load_project(environment),
            relay_poll_seconds=environment.number("RELAY_POLL_SECONDS", 1.0, float, least=0.01),
            retention_days=load_retention_days(environment),
            replay_horizon_days=load_replay_horizon_days(environment),
        )
        environment.check()
        return settings


@dataclass(frozen=True, slots=True)
class MigrationSettings:
    """The settings of the migrations, which log in as the owner of the tables."""

    database_url: str

    @classmethod
    def load(cls, service: str, variables: Mapping[str, str] = os.environ) -> "MigrationSettings":
        environment = Environment(variables)
        settings = cls(load_database_url(environment, service))
        environment.check()
        return settings


def load_database_url(environment: Environment, service: str) -> str:
    return environment.database_url(f"{service.upper()}_DATABASE_URL")


def load_project(environment: Environment) -> str:
    return environment.text("PUBSUB_PROJECT_ID", local="fern-local")


def load_retention_days(environment: Environment) -> int:
    return environment.number("RETENTION_DAYS", 90, int, least=1)


def load_replay_horizon_days(environment: Environment) -> int:
    return environment.number("REPLAY_HORIZON_DAYS", 30, int, least=1)
