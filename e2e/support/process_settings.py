"""Which settings each process reads: found by loading them."""

import os
from collections.abc import Callable, Iterator, Mapping
from functools import partial

import labour.settings
import notification.settings
from servicekit.worker_settings import MigrationSettings, RelaySettings, WorkerSettings

# As in the `__main__` of each service, and in its migrations. e2e/tests/test_settings_page.py starts the real processes.
LOAD: dict[str, Callable[[Mapping[str, str]], object]] = {
    "labour-api": labour.settings.ApiSettings.load,
    "labour-relay": partial(RelaySettings.load, "labour"),
    "labour-consumer": partial(WorkerSettings.load, "labour"),
    "labour-statistics": partial(WorkerSettings.load, "labour"),
    "labour-migrations": partial(MigrationSettings.load, "labour"),
    "notification-api": notification.settings.ApiSettings.load,
    "notification-relay": partial(RelaySettings.load, "notification"),
    "notification-consumer": notification.settings.ConsumerSettings.load,
    "notification-dispatcher": notification.settings.DispatcherSettings.load,
    "notification-migrations": partial(MigrationSettings.load, "notification"),
}
_LOCAL = {
    "FERN_MODE": "local",
    "LABOUR_DATABASE_URL": "postgresql+asyncpg://labour@127.0.0.1/labour",
    "NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://notification@127.0.0.1/notification",
}


class Recorded(Mapping[str, str]):
    """Variables that remember which of them were read."""

    def __init__(self, variables: Mapping[str, str]) -> None:
        self._variables, self.read = variables, set[str]()

    def __getitem__(self, name: str) -> str:
        self.read.add(name)
        return self._variables[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._variables)

    def __len__(self) -> int:
        return len(self._variables)


def read_by(process: str) -> set[str]:
    variables = Recorded(_LOCAL)
    LOAD[process](variables)
    return variables.read


def without_settings() -> dict[str, str]:
    """The environment of this test, for a process that is to miss its own settings."""
    services = set[str]().union(*(read_by(process) for process in LOAD))
    return {name: value for name, value in os.environ.items() if name not in services}
