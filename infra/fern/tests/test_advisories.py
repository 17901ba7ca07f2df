"""`make advisories` never calls a lock clean that was not looked up."""

import subprocess
from pathlib import Path

import pytest

from fern.settings import PROJECT_ROOT


@pytest.mark.system
@pytest.mark.parametrize(
    ("answer", "code", "said"),
    [
        ("exit 0", 0, "one.lock: no known vulnerability\ntwo.lock: no known vulnerability"),
        ("echo 'yarl 1.0 PYSEC-1'; exit 1", 1, "two.lock:\nyarl 1.0 PYSEC-1"),
        ("echo requests.exceptions.ConnectionError: … >&2; exit 1", 2, "one.lock was not looked up: the database"),
    ],
)
def test_the_exit_code_says_whether_a_vulnerability_is_known_or_nothing_is(
    answer: str, code: int, said: str, tmp_path: Path
) -> None:
    uv = tmp_path / "uv"
    uv.write_text(f"#!/bin/sh\n{answer}\n")
    uv.chmod(0o755)

    done = subprocess.run(
        ["sh", PROJECT_ROOT / "infra" / "advisories.sh", "one.lock", "two.lock"],
        env={"UV": str(uv), "PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == code
    assert said in done.stdout + done.stderr
