import os
import signal
import sys
import time
from collections.abc import Callable

import psutil
import pytest

from fern.errors import NeverHealthy, StaleProcess
from fern.runtime.checks import check_stale_processes, orphaned_processes
from fern.runtime.embedded import EmbeddedRuntime
from fern.runtime.health import wait_until_healthy
from fern.runtime.processes import Process, processes
from fern.runtime.supervisor import Supervisor
from fern.settings import Settings


def eventually(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    deadline = time.monotonic() + timeout
    while not condition():
        assert time.monotonic() < deadline, "not in time"
        time.sleep(0.02)


def start(runtime: EmbeddedRuntime, settings: Settings) -> tuple[int, psutil.Process]:
    """Start the worker; returns its pid, and the daemon."""
    runtime.supervisor.start_daemon()
    runtime.supervisor.start("worker")
    wait_until_healthy(runtime.supervisor, runtime.processes, settings, 60, on_healthy=lambda _: None)
    daemon = runtime.supervisor.daemon()
    assert daemon is not None
    return runtime.supervisor.states()["worker"].pid, daemon


def test_a_killed_process_is_started_again_and_counted(runtime: EmbeddedRuntime, settings: Settings) -> None:
    pid, _ = start(runtime, settings)

    os.kill(pid, signal.SIGKILL)

    eventually(lambda: runtime.supervisor.states()["worker"].pid not in (0, pid))
    assert runtime.supervisor.states()["worker"].restarts == 1


def test_down_ends_every_process_and_the_supervisor(runtime: EmbeddedRuntime, settings: Settings) -> None:
    pid, daemon = start(runtime, settings)

    runtime.down()

    assert not psutil.pid_exists(pid)
    assert not daemon.is_running()
    assert not runtime.supervisor.is_running()


def test_processes_that_outlive_their_supervisor_are_named_and_ended_by_down(
    runtime: EmbeddedRuntime, settings: Settings
) -> None:
    pid, daemon = start(runtime, settings)
    daemon.kill()
    eventually(lambda: runtime.supervisor.daemon() is None)

    with pytest.raises(StaleProcess, match=rf"worker \(pid {pid}\)"):
        check_stale_processes(settings, runtime.supervisor)
    runtime.down()

    assert list(orphaned_processes(settings)) == []
    assert check_stale_processes(settings, runtime.supervisor) == "none"


def test_a_supervisor_that_hangs_is_told_within_seconds_and_ended_by_down(
    runtime: EmbeddedRuntime, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid, daemon = start(runtime, settings)
    monkeypatch.setattr("fern.runtime.supervisor.ANSWER_TIMEOUT", 0.3)
    daemon.suspend()

    with pytest.raises(StaleProcess, match=f"pid {daemon.pid}"):
        runtime.supervisor.is_running()
    runtime.down()

    assert not daemon.is_running()
    assert not psutil.pid_exists(pid)


def test_a_process_that_keeps_dying_is_named_with_the_end_of_its_log(settings: Settings) -> None:
    command = (sys.executable, "-c", "raise SystemExit('no such database')")
    broken = Process("broken", "service", command, heartbeat=settings.heartbeat("broken"))
    supervisor = Supervisor(settings, [broken])
    supervisor.start_daemon()
    try:
        supervisor.start("broken")

        with pytest.raises(NeverHealthy, match="broken does not become healthy") as failure:
            wait_until_healthy(supervisor, [broken], settings, 120, on_healthy=lambda _: None)

        assert "no such database" in failure.value.details
        assert failure.value.exit_code == 15
    finally:
        supervisor.shut_down()


def test_a_heartbeat_of_the_process_before_does_not_count(runtime: EmbeddedRuntime, settings: Settings) -> None:
    silent = Process("worker", "service", ("/bin/sleep", "60"), heartbeat=settings.heartbeat("worker"))
    supervisor = runtime.supervisor = Supervisor(settings, [silent])
    settings.heartbeat("worker").parent.mkdir(parents=True)
    settings.heartbeat("worker").touch()
    os.utime(settings.heartbeat("worker"), (time.time() - 2, time.time() - 2))
    supervisor.start_daemon()
    supervisor.start("worker")

    with pytest.raises(NeverHealthy, match="no heartbeat yet"):
        wait_until_healthy(supervisor, [silent], settings, 0.5, on_healthy=lambda _: None)


def test_the_configuration_has_every_process_and_starts_none_by_itself(settings: Settings) -> None:
    everything = processes(settings)

    config = Supervisor(settings, everything).config()

    assert config.count("[program:") == len(everything) == config.count("autostart = false")
    assert config.count("autorestart = true") == len(everything)
    assert f'PUBSUB_EMULATOR_HOST="127.0.0.1:{settings.port("pubsub")}"' in config


def test_a_daemon_with_other_settings_is_noticed(runtime: EmbeddedRuntime, settings: Settings) -> None:
    start(runtime, settings)
    elsewhere = Settings(settings.port_base + 100, settings.home)

    assert runtime.supervisor.is_current()
    assert not Supervisor(elsewhere, runtime.processes).is_current()
