import json
import os
import shutil
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import psutil
import pytest
from click.testing import CliRunner

from fern import errors
from fern.cli import main
from fern.errors import DiskFull, FernError, PortTaken, PythonUnsupported
from fern.runtime import engine
from fern.runtime.checks import check_disk, check_ports, check_python
from fern.runtime.embedded import EmbeddedRuntime
from fern.settings import Settings


def test_a_taken_port_is_told_with_its_holder_and_a_way_out(settings: Settings, runtime: EmbeddedRuntime) -> None:
    with socket.create_server(("127.0.0.1", settings.port("sms-sandbox"))), pytest.raises(PortTaken) as refusal:
        check_ports(settings, runtime.supervisor)

    assert f"port {settings.port('sms-sandbox')}, needed by sms-sandbox" in refusal.value.message
    assert f"(pid {os.getpid()})" in refusal.value.message
    assert f"FERN_PORT_BASE={settings.port_base + 1000}" in str(refusal.value.command)


def test_up_and_doctor_end_with_the_code_of_a_taken_port(settings: Settings) -> None:
    with socket.create_server(("127.0.0.1", settings.port("labour-api"))):
        up = CliRunner().invoke(main, ["up", "--embedded"])
        doctor = CliRunner().invoke(main, ["doctor", "--json"])

    assert (up.exit_code, doctor.exit_code) == (10, 10)
    assert [item["check"] for item in json.loads(doctor.stdout)["items"] if not item["ok"]] == ["ports"]


def test_a_full_disk_is_told(settings: Settings, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("fern.runtime.postgres.ROOM_NEEDED", 2**60)

    with pytest.raises(DiskFull, match="no room left"):
        check_disk(settings)


@pytest.mark.system
def test_a_home_that_cannot_be_written_to_is_no_full_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERN_HOME", "/proc/fern")  # refuses root as well, and has no free space

    up, doctor = (CliRunner().invoke(main, command) for command in (["up", "--embedded"], ["doctor", "--json"]))

    assert (up.exit_code, doctor.exit_code) == (35, 35)
    assert "error: FERN_HOME is /proc/fern, and nothing can be written to /proc: " in up.stderr
    assert "(exit code 35)" in up.stderr
    assert 'try:   FERN_HOME="$HOME/.fern" make up' in up.stderr
    found = [item["check"] for item in json.loads(doctor.stdout)["items"] if not item["ok"]]
    assert found[0] == "home"


@pytest.mark.parametrize("version", [(3, 9, 18), (3, 15, 0)])
def test_a_python_that_is_too_old_or_too_new_is_told(
    monkeypatch: pytest.MonkeyPatch, version: tuple[int, int, int]
) -> None:
    monkeypatch.setattr("sys.version_info", version)

    with pytest.raises(PythonUnsupported, match="Python {}.{}.{}".format(*version)):
        check_python()


@pytest.fixture
def silent_engine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A socket that takes connections and never answers, as the engine does when it hangs."""
    path = tmp_path_factory.mktemp("d") / "s"
    monkeypatch.setattr(engine, "ENGINE_TIMEOUT", 0.5)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen()
        monkeypatch.setenv("DOCKER_HOST", f"unix://{path}")
        yield


@pytest.mark.skipif(shutil.which("docker") is None, reason="needs the docker command")
def test_an_engine_that_never_answers_ends_up_with_its_own_code(settings: Settings, silent_engine: None) -> None:
    up = CliRunner().invoke(main, ["up"])

    assert up.exit_code == 11
    assert "did not answer" in up.stderr
    assert "up --embedded" in up.stderr


def test_a_docker_command_that_hangs_is_a_silent_engine(
    settings: Settings, fake_docker: Callable[[str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(engine, "ENGINE_TIMEOUT", 0.3)
    fake_docker("exec sleep 60")

    assert engine.find_engine().state == "silent"
    assert CliRunner().invoke(main, ["doctor"]).exit_code == 11


def test_without_docker_asking_for_it_is_refused_with_its_own_code(
    settings: Settings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert engine.find_engine().state == "missing"
    assert CliRunner().invoke(main, ["up", "--docker"]).exit_code == 16


def test_in_docker_the_console_runs_on_the_host_and_goes_down_with_the_rest(
    settings: Settings, fake_docker: Callable[[str], None]
) -> None:
    fake_docker('case "$1" in version) echo 28.5.2 1.51;; compose) test "$2" != version || echo 2.40.3;; esac')
    try:
        up = CliRunner().invoke(main, ["up", "--docker"])
        assert (up.exit_code, "the demo data could not be written" in up.stderr) == (18, True)  # no container is real
        assert httpx.get(settings.url("console") + "/health").is_success
        [console] = json.loads(CliRunner().invoke(main, ["status", "--json"]).stdout)["items"]
        assert (console["process"], console["health"]) == ("console", "healthy")
    finally:
        down = CliRunner().invoke(main, ["down"])

    assert down.exit_code == 0
    assert not psutil.pid_exists(console["pid"])


def test_status_of_nothing_is_empty_and_says_so_in_its_code(settings: Settings) -> None:
    result = CliRunner().invoke(main, ["status", "--json"])

    assert result.exit_code == 19
    assert json.loads(result.stdout) == {"mode": None, "items": []}


def test_every_error_has_a_code_of_its_own() -> None:
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, FernError)]

    codes = [kind.exit_code for kind in kinds]

    assert sorted(codes) == [1, *range(10, 21), 25, 26, 27, 29, 30, 35, 36, 37]  # the others belong to experiments
