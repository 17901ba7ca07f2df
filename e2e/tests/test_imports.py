"""What each process imports, which is most of its start-up time and a fifth of its memory."""

import subprocess
import sys

import pytest

from fern.settings import PROJECT_ROOT

WORKERS = [
    ("labour", "consumer"),
    ("labour", "relay"),
    ("labour", "statistics"),
    ("notification", "consumer"),
    ("notification", "dispatcher"),
    ("notification", "relay"),
]


@pytest.mark.parametrize(("service", "worker"), WORKERS)
@pytest.mark.system
def test_a_worker_does_not_import_the_web_framework(service: str, worker: str) -> None:
    """Without settings it ends, once it has imported everything."""
    command = [sys.executable, "-X", "importtime", "-m", service, worker]

    ended = subprocess.run(command, env={}, cwd=PROJECT_ROOT, capture_output=True, text=True, timeout=60, check=False)

    imported = {
        line.rpartition("|")[2].strip() for line in ended.stderr.splitlines() if line.startswith("import time:")
    }
    assert ended.returncode == 78, ended.stderr[-2000:]
    assert {"messaging.database", f"{service}.__main__"} & imported
    assert "litestar" not in imported
