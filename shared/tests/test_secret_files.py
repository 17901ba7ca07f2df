"""Every secret can be given as a file. An error about the file says what is wrong, and never repeats the content."""

from pathlib import Path

import pytest
from structlog.testing import capture_logs

from messaging.errors import SettingsError
from servicekit.settings import Environment

NAME, VALUE = "TWILIO_AUTH_TOKEN", "a-real-secret"


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "token"
    path.write_text(f"{VALUE} \n\n")
    path.chmod(0o600)
    return path


def refusal(variables: dict[str, str]) -> str:
    environment = Environment(variables)
    environment.text(NAME, local="local-twilio-token", secret=True)
    with pytest.raises(SettingsError) as refused:
        environment.check()
    assert VALUE not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize("mode", ["local", ""])
def test_a_secret_is_read_from_a_file_without_the_space_at_its_end(file: Path, mode: str) -> None:
    environment = Environment({"FERN_MODE": mode, f"{NAME}_FILE": str(file)})

    assert environment.text(NAME, local="local-twilio-token", secret=True) == VALUE
    assert environment.secret(NAME, "default") == VALUE
    environment.check()


def test_a_database_url_is_a_secret(file: Path) -> None:
    file.write_text("postgresql+asyncpg://n:n@db.example/n?sslmode=verify-full\n")

    environment = Environment({"LABOUR_DATABASE_URL_FILE": str(file)})

    assert environment.database_url("LABOUR_DATABASE_URL").endswith("verify-full")
    environment.check()


def test_a_value_and_a_file_are_refused_together(file: Path) -> None:
    refused = refusal({NAME: VALUE, f"{NAME}_FILE": str(file)})

    assert refused.splitlines()[1:] == [f"  - {NAME} and {NAME}_FILE are both set: unset one"]


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    (tmp_path / "binary").write_bytes(b"\xff" + VALUE.encode())
    (tmp_path / "empty").write_text("\n")

    for name, reason in {
        "none": "cannot be read: No such file or directory",
        "": "cannot be read: Is a directory",
        "binary": "cannot be read: it is not text",
        "empty": "is empty: write the secret into it",
    }.items():
        path = tmp_path / name
        assert refusal({f"{NAME}_FILE": str(path)}).splitlines()[1:] == [f"  - {NAME}_FILE={path} {reason}"]


def test_the_development_value_is_refused_in_a_file_too(file: Path) -> None:
    file.write_text("local-twilio-token\n")

    assert "has its development value" in refusal({f"{NAME}_FILE": str(file)})


def test_outside_local_mode_a_file_that_others_can_change_is_refused(file: Path) -> None:
    file.chmod(0o620)

    assert f"chmod go-w {file}" in refusal({f"{NAME}_FILE": str(file)})


@pytest.mark.parametrize(("variables", "warnings"), [({}, 1), ({"FERN_MODE": "local"}, 0)], ids=["live", "local"])
def test_a_file_that_every_user_can_read_is_a_warning(file: Path, variables: dict[str, str], warnings: int) -> None:
    file.chmod(0o644)

    with capture_logs() as lines:
        environment = Environment({**variables, f"{NAME}_FILE": str(file)})
        assert environment.text(NAME, secret=True) == VALUE

    environment.check()
    assert [line["path"] for line in lines] == [str(file)] * warnings
