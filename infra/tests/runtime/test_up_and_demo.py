"""The whole system as a new user meets it, through the `fern` command alone."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from .ports import free_port_base

pytestmark = pytest.mark.xdist_group("up")  # one system for all of them


class Fern:
    def __init__(self, home: str, port_base: int) -> None:
        self._environment = {**os.environ, "FERN_HOME": home, "FERN_PORT_BASE": str(port_base)}

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(Path(sys.executable).with_name("fern")), *arguments]
        return subprocess.run(command, env=self._environment, capture_output=True, text=True, timeout=180, check=False)

    def json(self, *arguments: str) -> Any:
        return json.loads(self(*arguments, "--json").stdout)


@pytest.fixture(scope="module")
def fern() -> Iterator[Fern]:
    # Not below pytest's own directory: that is closed to the user PostgreSQL runs as when we are root.
    with tempfile.TemporaryDirectory(prefix="fern-up-") as home:
        fern = Fern(home, free_port_base())
        up = fern("up", "--embedded")
        try:
            assert up.returncode == 0, up.stdout + up.stderr
            yield fern
        finally:
            down = fern("down")
            assert down.returncode == 0, down.stderr


def test_after_up_every_process_is_healthy(fern: Fern) -> None:
    status = fern.json("status")

    assert status["mode"] == "embedded"
    assert {item["process"] for item in status["items"] if item["health"] != "healthy"} == set()


def test_the_demo_sends_every_text_once_even_while_processes_are_killed(fern: Fern) -> None:
    for process in ("labour-relay", "notification-consumer", "pubsub"):
        assert fern("kill", process).returncode == 0

    demo = fern.json("demo", "--timeout", "120")

    assert demo["problem"] is None
    assert sorted(text["event_type"] for text in demo["texts"]) == ["labour.begun"] * 2 + ["labour.completed"] * 2
    hops = [hop["hop"] for hop in demo["hops"] if hop["scene"] == "the baby is here"]
    assert hops == ["committed", "in the outbox", "published", "claimed", "SMS sent", "SMS sent"]


def test_up_again_changes_nothing(fern: Fern) -> None:
    before = {item["process"]: item["pid"] for item in fern.json("status")["items"]}

    again = fern("up", "--embedded")

    assert again.returncode == 0, again.stderr
    assert {item["process"]: item["pid"] for item in fern.json("status")["items"]} == before
