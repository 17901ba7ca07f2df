"""The system as a new user meets it: `make up`, `make demo`, and every command of the README."""

import re

from e2e.support.installation import Installation
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
    before = {item["process"]: item["pid"] for item in installation.json("status")["items"]}

    again = installation.fern("up", "--embedded")

    assert again.returncode == 0, again.stderr
    assert re.findall(r"http://\S+", again.stdout)[0] == installation.settings.url("console")
    assert {item["process"]: item["pid"] for item in installation.json("status")["items"]} == before


README = (PROJECT_ROOT / "README.md").read_text()
COMMANDS = re.findall(r"^```sh\n(.*?)^```$", README, flags=re.MULTILINE | re.DOTALL)
RUN_ELSEWHERE = {"make up", "make test"}  # the fixture does the one, and this is part of the other


def test_every_command_in_the_readme_does_what_it_says(installation: Installation) -> None:
    lines = [line for block in COMMANDS for line in block.splitlines() if line not in RUN_ELSEWHERE]
    script = installation.adapt("set -euo pipefail\n" + "\n".join(lines))

    done = installation.run(["bash", "-c", script])

    assert done.returncode == 0, done.stdout + done.stderr
    assert '"phase":"complete"' in done.stdout
    assert "labour-already-completed" in done.stdout
    assert "The baby is here! Eve has given birth." in done.stdout
    assert done.stdout.count("4 texts, each exactly once") == 2  # make demo, and again while things are broken
    assert "nothing is parked" in done.stdout
    assert "clean: every event and every text is accounted for" in done.stdout
