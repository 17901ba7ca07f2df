"""The system as a new user meets it: `make up`, `make demo`, and every command of the README."""

import re
from pathlib import Path

import pytest

from e2e.support.installation import Installation
from e2e.support.ports import free_port_base
from e2e.support.transcript import matches, run, steps
from e2e.support.waiting import until
from fern.settings import PROJECT_ROOT


def test_after_up_every_process_is_healthy(installation: Installation) -> None:
    status = installation.json("status")

    assert status["mode"] == "embedded"
    assert {item["process"] for item in status["items"] if item["health"] != "healthy"} == set()


def test_the_demo_sends_every_text_once_even_while_processes_are_killed(installation: Installation) -> None:
    for process in ("labour-relay", "notification-consumer", "pubsub"):
        assert installation.fern("kill", process).returncode == 0

    demo = installation.json("demo", "--timeout", "120")

    assert demo["problem"] is None
    assert sorted(text["event_type"] for text in demo["texts"]) == ["labour.begun"] * 2 + ["labour.completed"] * 2
    hops = [hop["hop"] for hop in demo["hops"] if hop["scene"] == "the baby is here" and "doubt" not in hop["hop"]]
    assert hops == ["committed", "in the outbox", "published", "claimed", "SMS sent", "SMS sent"]


def test_up_again_changes_nothing(installation: Installation) -> None:
    """Tried again while a process that another test has killed is still on its way back: then `up` does all its steps."""

    def pids() -> dict[str, int]:
        return {item["process"]: item["pid"] for item in installation.json("status")["items"]}

    def up_again() -> tuple[bool, str]:
        before, again = pids(), installation.fern("up", "--embedded")
        return again.returncode == 0 and pids() == before, again.stdout + again.stderr

    _, printed = until(up_again, lambda seen: seen[0] and "already up" in seen[1], what="`up` changes nothing")

    assert printed.splitlines()[1] == "FernLabour is already up"
    assert re.findall(r"http://\S+", printed)[0] == installation.settings.url("console")


@pytest.mark.system
def test_the_exit_code_of_a_failed_command_is_visible_through_make(tmp_path: Path) -> None:
    nothing = Installation(str(tmp_path), free_port_base())

    status, audit = (nothing.run(["make", target]) for target in ("status", "audit"))

    assert status.returncode == audit.returncode == 2, "make has one code for all failures"
    assert "Error 19" in status.stderr
    assert "(exit code 19)" in audit.stderr


README = PROJECT_ROOT / "README.md"
RUN_ELSEWHERE = "make test\n"  # this is part of it


def test_every_command_in_the_readme_does_what_it_says(installation: Installation, tmp_path: Path) -> None:
    here = steps(installation.adapt(README.read_text()), RUN_ELSEWHERE)

    printed, failures, _ = run(here, installation, tmp_path)

    assert failures == [], "".join(printed)
    assert len(printed) == len(here) + 1, printed[-1]
    for step, output in zip(here, printed, strict=False):
        if step.output is not None and not matches(output, step.output):
            pytest.fail(f"README.md:{step.line} promises\n{step.output}\nbut it printed\n{output}", pytrace=False)
    everything = "".join(printed)
    assert everything.count("4 texts, each exactly once") == 2  # make demo, and again while things are broken
    assert "nothing is parked" in everything
