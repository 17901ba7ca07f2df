"""Docker mode without an engine: what `fern` asks Docker for, what it refuses, and how it reads the answers.

`make test-docker` tries the same on a real engine (e2e/docker).
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from fern.cli import main
from fern.errors import JobFailed, TopologyInvalid
from fern.overrides import Overrides
from fern.runtime import docker
from fern.runtime.containers import parse
from fern.runtime.engine import judge
from fern.runtime.system import processes_now
from fern.settings import Settings


@pytest.mark.parametrize(
    ("engine", "api", "compose", "state"),
    [
        ("28.5.2", "1.51", "2.40.3", "answering"),
        ("25.0.0", "1.44", "v2.24.4", "answering"),
        ("25.0.0", "1.44", "2.24.3", "old"),
        ("26.1.5+dfsg1", "1.45", "2.26.1-4", "answering"),
        ("24.0.9", "1.43", "2.40.3", "old"),
        ("20.10.24+dfsg1", "1.41", "2.26.1-4", "old"),
        ("28.5.2", "1.51", "2.23.3", "old"),
        ("29.1.0", "1.52", "5.0.1", "answering"),
        ("28.5.2", "1.51", "dev", "answering"),
    ],
)
def test_an_engine_and_a_compose_that_cannot_run_the_system_are_known_by_their_versions(
    engine: str, api: str, compose: str, state: str
) -> None:
    found = judge(engine, api, compose)

    assert found.state == state
    assert engine in found.detail
    assert compose in found.detail


def test_an_old_engine_is_told_before_anything_is_built_with_the_way_without_it(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    called = tmp_path / "called"
    fake_docker(f'echo "$*" >> {called}; case "$1" in version) echo 20.10.24 1.41;; compose) echo 2.26.1;; esac')

    up, doctor = (CliRunner().invoke(main, [command]) for command in ("up", "doctor"))

    assert (up.exit_code, doctor.exit_code) == (16, 16)
    for output in (up.stderr, doctor.output):
        assert "the engine is too old, version 25 or later is needed" in output
        assert "fern up --embedded" in output
    assert all("version" in line for line in called.read_text().splitlines())


def test_doctor_does_not_call_an_engine_unneeded_that_the_system_was_started_in(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    before = CliRunner().invoke(main, ["doctor"])
    settings.remember("docker")

    after = CliRunner().invoke(main, ["doctor"])
    up = CliRunner().invoke(main, ["up"])

    assert (before.exit_code, "not needed (there is no docker command)" in before.output) == (0, True)
    assert (after.exit_code, "not needed (there is no docker command)" in after.output) == (16, False)
    assert "the system was started in Docker, and its engine cannot be used: there is no docker command" in after.output
    assert (up.exit_code, "up --embedded" in up.stderr) == (16, True)


def test_an_engine_that_is_gone_is_a_sentence_for_doctor_and_an_error_for_logs(
    settings: Settings, fake_docker: Callable[[str], None]
) -> None:
    settings.remember("docker")
    fake_docker(
        "echo 'Cannot connect to the Docker daemon at unix:///d.sock. Is the docker daemon running?' >&2; exit 1"
    )

    doctor, logs = (CliRunner().invoke(main, [command]) for command in ("doctor", "logs"))

    assert (
        "its engine cannot be used: Cannot connect to the Docker daemon at unix:///d.sock. Start the engine"
        in doctor.output
    )
    assert (logs.exit_code, "docker compose shows no logs" in logs.stderr) == (18, True)
    assert "Cannot connect to the Docker daemon" in logs.stderr


def test_spans_names_the_command_that_works_without_traces(settings: Settings) -> None:
    settings.remember("docker")
    event = "01a1f07c-8c57-71ea-bb33-dac455e009ff"

    refused = CliRunner().invoke(main, ["spans", event])

    assert (refused.exit_code, "containers cannot send their traces to the console" in refused.stderr) == (1, True)
    assert f"trace {event}" in refused.stderr


@pytest.mark.parametrize(
    ("step", "why"), [("pull", "an image cannot be pulled"), ("build", "the images cannot be built")]
)
def test_without_the_images_the_way_without_docker_is_named(
    settings: Settings, fake_docker: Callable[[str], None], step: str, why: str
) -> None:
    fake_docker(f'case "$*" in "compose {step}"*) exit 1;; esac')

    with pytest.raises(JobFailed, match=why) as failed:
        docker.up(settings)

    assert str(failed.value.command).endswith("fern up --embedded")


def test_compose_gets_the_ports_the_numbers_and_the_delivery_of_this_machine(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    Overrides({"notification": "push"}, {"labour-relay": 2}).save(settings)
    fake_docker(f'echo "$*" >> {tmp_path}/called; env > {tmp_path}/env')

    docker.up(settings)

    pull, build, up = (tmp_path / "called").read_text().splitlines()
    assert (pull, build) == ("compose pull --quiet --policy missing postgres", "compose build")
    assert up.endswith(
        " --scale=labour-relay=2 --scale=notification-consumer=0"
    )  # the pushed consumer has nothing to pull
    environment = (tmp_path / "env").read_text().splitlines()
    assert f"SMS_SANDBOX_PORT={settings.port('sms-sandbox')}" in environment
    assert f"PUBSUB_HTTP_PORT={settings.port('pubsub-http')}" in environment
    assert "FERN_DELIVERY=notification=push" in environment


def test_googles_bus_replaces_ours_and_cannot_push(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    fake_docker(f'echo "$*" >> {tmp_path}/called')
    settings.remember("docker", "google")

    docker.up(settings)

    for line in (tmp_path / "called").read_text().splitlines():
        assert line.startswith("compose --file docker-compose.yml --file infra/docker/google-bus.yml ")
    Overrides({"notification": "push"}).save(settings)
    with pytest.raises(TopologyInvalid, match="push requests have no token"):
        docker.up(settings)


def test_googles_bus_needs_docker(settings: Settings) -> None:
    refused = CliRunner().invoke(main, ["up", "--embedded", "--bus", "google"])

    assert (refused.exit_code, "--bus google needs Docker" in refused.stderr) == (2, True)


def test_grafana_is_started_with_its_profile_and_every_container_sends_to_it_until_the_system_goes_down(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    fake_docker(f'echo "$*" >> {tmp_path}/called; env > {tmp_path}/env')
    settings.remember("docker", observed=True)

    docker.up(settings)
    environment = (tmp_path / "env").read_text().splitlines()
    settings.forget()
    docker.down(settings, delete_data=False)

    pull, *_, down = (tmp_path / "called").read_text().splitlines()
    assert pull.endswith(" postgres observability")
    assert {"COMPOSE_PROFILES=observe", f"FERN_OTLP={docker.OTLP}"} <= set(environment)
    assert f"GRAFANA_PORT={settings.port_base + 9}" in environment
    assert down.startswith("compose --profile observe down ")
    assert not any(
        line.startswith(("FERN_OTLP", "COMPOSE_PROF")) for line in (tmp_path / "env").read_text().splitlines()
    )


def test_grafana_needs_docker_and_without_it_the_console_is_named(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    contradiction = CliRunner().invoke(main, ["up", "--embedded", "--observe"])
    monkeypatch.setenv("PATH", str(tmp_path))
    refused = CliRunner().invoke(main, ["up", "--observe"])

    assert (contradiction.exit_code, "--observe needs Docker" in contradiction.stderr) == (2, True)
    assert refused.exit_code == 16
    assert "the console shows traces and metrics" in refused.stderr
    assert "fern up --embedded" in refused.stderr
    assert settings.mode is None


def inspected(service: str, number: int = 1, **state: Any) -> dict[str, Any]:
    labels = {"com.docker.compose.service": service, "com.docker.compose.container-number": str(number)}
    known = {"Status": "running", "ExitCode": 0, "StartedAt": "2026-11-18T13:38:41.860936149Z", **state}
    return {"Id": f"id-of-{service}-{number}", "Config": {"Labels": labels}, "State": known, "RestartCount": 3}


def test_a_container_has_the_name_of_its_process_its_restarts_and_what_its_last_check_printed() -> None:
    log = [{"Output": ""}, {"Output": 'a warning\n{"state": "waiting", "reason": "bus unavailable"}\n'}]

    first = parse(inspected("labour-relay"))
    second = parse(inspected("labour-relay", 2, Health={"Status": "unhealthy", "Log": log}))
    job = parse(inspected("topology", Status="exited"))

    assert [one.name for one in (first, second, job)] == ["labour-relay", "labour-relay-2", "topology"]
    assert second.last_check == '{"state": "waiting", "reason": "bus unavailable"}'
    assert (first.restarts, first.last_check, first.health) == (3, "", "")
    assert first.uptime_seconds is not None
    assert (job.has_finished, job.uptime_seconds) == (True, None)


def test_status_counts_a_finished_job_as_healthy_and_kill_refuses_it(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    settings.remember("docker")
    listed = [
        inspected("topology", Status="exited"),
        inspected("labour-api", Health={"Status": "starting", "Log": None}),
    ]
    (tmp_path / "inspected").write_text(json.dumps(listed))
    fake_docker(f'echo "$*" >> {tmp_path}/called; case "$1" in ps) echo 1 2;; inspect) cat {tmp_path}/inspected;; esac')

    status = CliRunner().invoke(main, ["status", "--json"])
    job = CliRunner().invoke(main, ["kill", "topology"])
    unknown = CliRunner().invoke(main, ["kill", "labour-api-2"])

    health = {item["process"]: (item["health"], item["restarts"]) for item in json.loads(status.stdout)["items"]}
    assert health == {"topology": ("healthy", 3), "labour-api": ("starting", 3)}
    assert (status.exit_code, job.exit_code, unknown.exit_code) == (15, 1, 1)
    assert "topology is a job that has finished" in job.stderr
    assert "there is no container labour-api-2; there are labour-api, topology" in unknown.stderr
    assert "exec" not in (tmp_path / "called").read_text()


def test_a_container_that_was_killed_is_held_down_and_a_job_that_failed_is_not(
    settings: Settings, fake_docker: Callable[[str], None], tmp_path: Path
) -> None:
    settings.remember("docker")
    listed = [
        inspected("migrate-labour", Status="exited", ExitCode=1),
        inspected("labour-relay", Status="exited", ExitCode=137),
    ]
    (tmp_path / "inspected").write_text(json.dumps(listed))
    fake_docker(f'case "$1" in ps) echo 1 2;; inspect) cat {tmp_path}/inspected;; esac')

    held = {
        one.process: one.is_held for one in processes_now(settings) if one.process in ("migrate-labour", "labour-relay")
    }

    assert held == {"migrate-labour": False, "labour-relay": True}
