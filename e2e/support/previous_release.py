"""The code of the release before, from the history of this repository, and its processes."""

import io
import os
import subprocess
import sys
import tarfile
import tomllib
from pathlib import Path

import pytest

from fern.settings import PROJECT_ROOT

DECLARED = tomllib.loads((PROJECT_ROOT / "infra" / "previous-release.toml").read_text())
COMMIT: str = DECLARED["commit"]
MIGRATIONS: dict[str, str] = DECLARED["migrations"]  # the newest one of each service


def checkout(directory: Path) -> Path:
    """Writes the code of the release before below `directory`. Skips the test if this is not a clone with that commit."""
    subprocess.run(["tar", "-x", "-C", directory], input=_archive("services", "shared"), check=True)
    return directory


def files(folder: str) -> dict[str, str]:
    """The name and text of every file of a folder of the release before. Skips the test like `checkout`."""
    with tarfile.open(fileobj=io.BytesIO(_archive(folder))) as archive:
        found = {Path(one.name).name: archive.extractfile(one) for one in archive if one.isfile()}
        return {name: file.read().decode() for name, file in found.items() if file}


def _archive(*paths: str) -> bytes:
    known = subprocess.run(["git", "cat-file", "-e", f"{COMMIT}^{{commit}}"], cwd=PROJECT_ROOT, capture_output=True)
    if known.returncode:
        pytest.skip(f"this is not a git clone with the commit {COMMIT[:7]}, the release before: git fetch --unshallow")
    return subprocess.run(["git", "archive", COMMIT, *paths], cwd=PROJECT_ROOT, check=True, stdout=-1).stdout


def environment(code: Path) -> dict[str, str]:
    """Variables with which Python imports the services of `code` instead of today's."""
    folders = [code / "shared", *(code / "services" / service for service in MIGRATIONS)]
    # Settings that today's release does not have any more.
    return {"PYTHONPATH": os.pathsep.join(map(str, folders)), "OPERATIONS_TOKEN": "local-operations"}


def migrate(code: Path, service: str, url: str) -> None:
    command = [sys.executable, "-m", "alembic", "-c", f"services/{service}/alembic.ini", "upgrade", "head"]
    variables = {**os.environ, **environment(code), "FERN_MODE": "local", f"{service.upper()}_DATABASE_URL": url}
    subprocess.run(command, cwd=code, env=variables, check=True, capture_output=True, timeout=120)
