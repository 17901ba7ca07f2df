"""`fern scale`: replicas are started, known to every command, and stopped gracefully."""

from dataclasses import replace

import psutil
import pytest
from click.testing import CliRunner

from fern.cli import main
from fern.overrides import Overrides
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.processes import processes
from fern.settings import Settings

from .runtime_parts import adjusted


def names(settings: Settings) -> list[str]:
    return [process.name for process in processes(settings) if process.name.startswith("notification-consumer")]


def idle(settings: Settings) -> dict[str, str]:
    return {process.name: process.idle for process in processes(settings) if process.idle}


def test_replicas_start_beside_the_first_and_stop_without_touching_it(
    runtime: EmbeddedRuntime, settings: Settings
) -> None:
    (worker,) = runtime.processes
    second = replace(worker, name="worker-2", heartbeat=settings.heartbeat("worker-2"))
    runtime.supervisor.start_daemon()
    runtime.adjust()
    first_pid = runtime.supervisor.states()["worker"].pid

    up = adjusted(settings, worker, second).supervisor.states()
    idle = adjusted(settings, worker, replace(second, idle="not needed")).supervisor.states()
    down = adjusted(settings, worker).supervisor

    assert (up["worker"].pid, up["worker-2"].is_up) == (first_pid, True)
    assert (idle["worker"].pid, idle["worker-2"].state) == (first_pid, "STOPPED")
    assert [(state.name, state.pid) for state in down.states().values()] == [("worker", first_pid)]
    assert not psutil.pid_exists(up["worker-2"].pid)
    assert down.is_current()


def test_the_number_is_kept_until_it_is_changed(settings: Settings) -> None:
    fern = CliRunner()

    first = fern.invoke(main, ["scale", "notification-consumer=3", "labour-relay=2"])
    assert first.output.splitlines()[0] == "notification-consumer: 3 from the next `fern up` on"
    assert names(settings) == ["notification-consumer", "notification-consumer-2", "notification-consumer-3"]

    fern.invoke(main, ["scale", "notification-consumer=0"])
    assert names(settings) == ["notification-consumer"]
    assert list(idle(settings)) == ["notification-consumer"]

    fern.invoke(main, ["scale", "notification-consumer=1", "labour-relay=1"])
    assert (idle(settings), Overrides.load(settings)) == ({}, Overrides())


def test_a_consumer_that_is_pushed_to_is_not_started(settings: Settings) -> None:
    Overrides(delivery={"notification": "push"}, replicas={"notification-consumer": 2}).save(settings)

    why = "its subscriptions are pushed to notification-api"
    assert idle(settings) == {"notification-consumer": why, "notification-consumer-2": why}


@pytest.mark.parametrize(
    ("wanted", "why"),
    [
        ("labour-api=2", "it listens on one port"),
        ("postgres=2", "postgres cannot be scaled; these can: labour-relay"),
        ("nonsense=2", "nonsense cannot be scaled"),
        ("labour-relay=11", "a count from 0 to 10"),
        ("labour-relay=-1", "a count from 0 to 10"),
        ("labour-relay", "is not PROCESS=COUNT"),
    ],
)
def test_what_cannot_be_scaled_is_refused_and_changes_nothing(settings: Settings, wanted: str, why: str) -> None:
    refused = CliRunner().invoke(main, ["scale", "notification-consumer=2", wanted])

    assert (refused.exit_code, Overrides.load(settings)) == (30, Overrides())
    assert why in refused.output
