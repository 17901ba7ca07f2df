"""What `fern status` says about a worker, from its heartbeat."""

import json
import os
import time
from pathlib import Path

import pytest

from fern.runtime import health
from fern.runtime.processes import Process
from fern.runtime.supervisor import ProcessState
from fern.settings import Settings

RUNNING = ProcessState("labour-relay", "RUNNING", 1, 0.0, 0)


@pytest.mark.parametrize(
    ("beat", "seconds_ago", "said"),
    [
        ({"state": "working", "reason": ""}, 0, None),
        ({"state": "working", "reason": ""}, 20, "no heartbeat for 20 s"),
        (
            {"state": "waiting", "reason": "topic labour.begun unavailable for 9 s (NOT_FOUND)"},
            0,
            "waiting: topic labour.begun unavailable for 9 s (NOT_FOUND)",
        ),
    ],
)
def test_a_worker_is_healthy_if_its_heartbeat_is_recent_and_it_waits_for_nothing(
    tmp_path: Path, beat: dict[str, str], seconds_ago: float, said: str | None
) -> None:
    heartbeat = tmp_path / "heartbeat"
    heartbeat.write_text(json.dumps(beat))
    os.utime(heartbeat, (time.time() - seconds_ago,) * 2)
    worker = Process("labour-relay", "service", (), heartbeat=heartbeat)

    assert health.problem(worker, RUNNING, Settings(8400, tmp_path)) == said
