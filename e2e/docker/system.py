"""A system on this machine's Docker engine, as the tests see it. What was measured on the way is in `figures`."""

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.support.waiting import until
from fern.runtime.containers import Container, containers
from fern.settings import Settings

COMMAND_TIMEOUT = 180.0  # seconds
STAND_IN = "fernlabour.stand-in"  # a label of images that replace the real ones, where no registry can be reached
JOBS = {"databases", "labour-migrations", "notification-migrations", "topology"}

FERN = Path(sys.executable).with_name("fern")

figures: dict[str, str] = {}


@dataclass(frozen=True)
class System:
    settings: Settings

    def fern(self, *arguments: str, timeout: float = COMMAND_TIMEOUT, fails: bool = False) -> str:
        """Run the command and return its output. Fails the test unless the command succeeds, or fails if that was expected."""
        command = [str(FERN), *arguments]
        done = subprocess.run(command, capture_output=True, text=True, timeout=timeout, check=False)
        assert (done.returncode != 0) == fails, (
            f"fern {' '.join(arguments)}:\n{done.stdout[-3000:]}\n{done.stderr[-3000:]}"
        )
        return done.stdout + done.stderr

    def demo(self) -> None:
        """Run the demo, in which each of two people must get each of two texts once."""
        assert json.loads(self.fern("demo", "--json", "--timeout", "90"))["problem"] is None
        figures["demos, each text exactly once"] = str(int(figures.get("demos, each text exactly once", "0")) + 1)

    def audit(self) -> dict[str, Any]:
        """The audit, in which everything that has not arrived yet counts as late, so that it cannot hide that it is lost."""
        command = [str(FERN), "audit", "--json", "--overdue", "0"]
        done = subprocess.run(command, capture_output=True, text=True, timeout=COMMAND_TIMEOUT, check=False)
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def running(self) -> dict[str, Container]:
        """The containers of processes, without those of jobs, by name."""
        return {one.name: one for one in containers() if one.service not in JOBS}

    def wait_until_healthy(self) -> dict[str, Container]:
        def all_healthy(found: dict[str, Container]) -> bool:
            return bool(found) and all(one.health == "healthy" for one in found.values())

        return until(self.running, all_healthy, what="all containers healthy")

    def inside(self, process: str, script: str) -> str:
        """The output of a Python script in a container."""
        command = ["docker", "exec", self.running()[process].id, "python", "-c", script]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout.strip()


def docker(*arguments: str) -> str:
    return subprocess.run(
        ["docker", *arguments], capture_output=True, text=True, timeout=120, check=True
    ).stdout.strip()
