"""Health is progress: a hang ends the process, and an outage is named in the heartbeat."""

import json
import os
import subprocess
import sys
from pathlib import Path
from weakref import WeakSet

import pytest
from structlog.testing import capture_logs

from e2e.support.waiting import until
from messaging import progress
from messaging.progress import Outage, State, step


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """A clock that the test sets: its only element is the time."""
    now = [1000.0]
    monkeypatch.setattr("messaging.progress.time.monotonic", lambda: now[0])
    monkeypatch.setattr(progress, "_failed_at", 0.0)
    monkeypatch.setattr(progress, "_outages", WeakSet())  # without those of other tests
    monkeypatch.setattr(progress, "_steps", {})
    return now


def test_a_step_that_takes_too_long_is_stuck_and_one_that_has_ended_is_not(clock: list[float]) -> None:
    with step("publishing events"):
        clock[0] += 59
        assert progress.state() == State("working", "")
        clock[0] += 2
        assert progress.state() == State("stuck", "publishing events for 61 s")

    assert progress.state() == State("working", "")


def test_a_step_that_retries_during_an_outage_is_waiting_until_the_retries_stop(clock: list[float]) -> None:
    outage = Outage("database")
    with step("handling a batch"):
        for _ in range(100):
            outage.failed("it is read-only")
            clock[0] += 5
        assert progress.state() == State("waiting", "database unavailable for 500 s (it is read-only)")
        clock[0] += 60
        assert progress.state().state == "stuck"


def test_an_outage_is_logged_once_when_it_begins_and_once_when_it_ends(clock: list[float]) -> None:
    outage = Outage("database")
    with capture_logs() as logs:
        for _ in range(20):
            outage.failed("its disk is full")
            clock[0] += 10
        outage.over()
        outage.over()

    began, ended = logs
    assert (began["event"], began["dependency"]) == ("dependency unavailable", "database")
    assert (ended["event"], ended["seconds"], ended["failures"]) == ("dependency available again", 200.0, 20)
    assert progress.state() == State("working", "")


def test_the_first_of_many_outages_are_named_and_the_others_counted(clock: list[float]) -> None:
    outages = [Outage(f"topic {number}") for number in range(5)]
    for outage in outages:
        outage.failed("NOT_FOUND")

    named = "topic 0 unavailable for 0 s (NOT_FOUND); topic 1 unavailable for 0 s (NOT_FOUND); and 3 more"
    assert progress.state() == State("waiting", named)


def test_an_outage_that_nothing_meets_any_more_does_not_count(clock: list[float]) -> None:
    outage = Outage("topic labour.begun")
    outage.failed("NOT_FOUND")

    clock[0] += progress.LAPSE_SECONDS

    assert progress.state() == State("working", "")


PROCESS = """
import asyncio
from messaging.progress import Outage, step
from servicekit.process import run

async def main(stop):
    outage = Outage("bus")
    outage.failed("it does not answer")
    await asyncio.sleep({outage})
    outage.over()
    with step("publishing events"):
        await stop.wait()

run("tests", main)
"""


def start(tmp_path: Path, **values: float) -> subprocess.Popen[str]:
    environment = {**os.environ, "HEARTBEAT_FILE": str(tmp_path / "heartbeat"), "STEP_SECONDS": "1"}
    script = PROCESS.format(**values)
    command = [sys.executable, "-c", script]
    return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.system
def test_a_process_that_hangs_ends_with_its_own_code_and_says_what_it_was_doing(tmp_path: Path) -> None:
    with start(tmp_path, outage=0) as process:
        output, _ = process.communicate(timeout=60)

    assert process.returncode == 70
    assert "publishing events for" in output
    assert json.loads((tmp_path / "heartbeat").read_text())["state"] == "stuck"


@pytest.mark.system
def test_a_process_that_waits_says_in_its_heartbeat_what_for(tmp_path: Path) -> None:
    heartbeat = tmp_path / "heartbeat"
    with start(tmp_path, outage=60) as process:
        until(heartbeat.exists, what="it writes a heartbeat")
        beat = until(lambda: json.loads(heartbeat.read_text()), lambda beat: beat["state"] == "waiting")
        process.kill()

    assert beat["reason"].startswith("bus unavailable for")
