"""`fern outbox` without a running system."""

import pytest
from click.testing import CliRunner

from fern.cli import main


@pytest.mark.parametrize("verb", ["retry", "discard"])
def test_without_a_selection_the_command_suggests_to_look_and_never_to_change_everything(verb: str) -> None:
    result = CliRunner().invoke(main, ["outbox", verb])

    assert result.exit_code == 1
    assert f"no rows to {verb} are named" in result.output
    assert "fern outbox ls --parked" in result.output
    assert "--all-parked" not in result.output
