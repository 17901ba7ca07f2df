import socket
from pathlib import Path

import pytest

from fern.errors import FernError
from fern.settings import Settings


def test_one_variable_moves_every_port(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERN_PORT_BASE", "9400")

    environment = Settings.load().environment()

    assert "84" not in "".join(value for name, value in environment.items() if "PORT" in name or "URL" in name)
    assert environment["PUBSUB_EMULATOR_HOST"] == "127.0.0.1:9404"


def test_a_running_system_remembers_its_ports_until_it_is_down(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERN_HOME", str(tmp_path))
    monkeypatch.setenv("FERN_PORT_BASE", "9400")
    Settings.load().remember("embedded")
    monkeypatch.delenv("FERN_PORT_BASE")

    while_up = Settings.load()
    while_up.forget()
    after_down = Settings.load()

    assert (while_up.port_base, after_down.port_base) == (9400, 8400)
    assert after_down.mode is None


@pytest.mark.parametrize("base", ["none", "80", "99999", "-1"])
def test_ports_that_cannot_be_are_refused(base: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FERN_PORT_BASE", base)

    with pytest.raises(FernError, match="FERN_PORT_BASE"):
        Settings.load()


def test_the_supervisor_socket_fits_however_deep_the_project_lies(tmp_path: Path) -> None:
    path = Settings(8400, tmp_path / ("deep" * 40)).supervisor_socket

    with socket.socket(socket.AF_UNIX) as server:
        server.bind(f"{path}.{2**22}")  # the longest name supervisord uses on the way
    Path(f"{path}.{2**22}").unlink()
