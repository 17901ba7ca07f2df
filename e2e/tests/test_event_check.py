"""A step that is forgotten when an event is added is found by `make check`, which names the file to open."""

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

import pytest

from e2e.experiments.event_check import INCOMPLETE, missing
from fern.settings import PROJECT_ROOT

PACKAGES = ("shared", "services/labour", "services/notification", "infra/fern", "")
EVENT = '''

class LabourPaused(Event, frozen=True, kw_only=True):
    """The labour has paused, and the subscribers are notified."""

    type = "labour.paused"

    roster_version: Version
    mother_name: Name
'''
# What each step adds, and to which file: text that is replaced, or appended if there is none to replace.
STEPS: dict[str, tuple[str, str]] = {
    "shared/contracts/events.py": ("", EVENT),
    "infra/topology.toml": ('"labour.planned" = []', '"labour.planned" = []\n"labour.paused" = ["notification"]'),
    "services/labour/labour/domain/labour.py": ("", "\nPAUSED = events.LabourPaused\n"),
    "services/notification/notification/domain/reactions.py": ("LabourBegun", "LabourBegun, LabourPaused"),
    "services/notification/notification/domain/wording.py": (
        "TEMPLATES = {",
        'TEMPLATES = {\n    "labour.paused": "{mother}",',
    ),
}
# What `fern contracts write` makes of the event.
GENERATED = (
    "shared/contracts/schemas/labour.paused.v1.json",
    "docs/events/labour.paused.md",
    "docs/events/README.md",
    "docs/asyncapi.json",
)


def test_every_event_is_complete() -> None:
    assert missing() == []


@pytest.fixture(scope="module")
def copy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    for name in ("shared", "services", "infra", "e2e", "docs"):
        shutil.copytree(
            PROJECT_ROOT / name, folder / name, ignore=shutil.ignore_patterns("__pycache__", "images", "tests")
        )
    return folder


def changed(original: str, old: str, new: str) -> str:
    if not old:
        return original + new
    if old == "LabourBegun":  # in the import, in TOPICS and in react()
        return original.replace("LabourBegun,", f"{new},").replace("LabourBegun()", "LabourBegun() | LabourPaused()")
    return original.replace(old, new)


def run(copy: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    paths = os.pathsep.join(str(copy / package) for package in PACKAGES)
    environment: Mapping[str, str] = {**os.environ, "PYTHONPATH": paths, "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.system
@pytest.mark.parametrize("forgotten", ["nothing", *GENERATED, *list(STEPS)[1:]])
def test_a_forgotten_step_is_named_with_the_file_to_open(copy: Path, forgotten: str) -> None:
    for file, (old, new) in STEPS.items():
        original = (PROJECT_ROOT / file).read_text()
        (copy / file).write_text(original if file == forgotten else changed(original, old, new))
    written = run(copy, "fern", "contracts", "write")
    assert written.returncode == 0, written.stderr
    if forgotten in GENERATED:
        before = PROJECT_ROOT / forgotten
        (copy / forgotten).write_text(before.read_text()) if before.exists() else (copy / forgotten).unlink()

    checked = run(copy, "e2e.experiments.event_check")

    named = {line.partition(":")[0] for line in checked.stderr.splitlines()[:-1]}
    if forgotten == "nothing":
        assert (checked.returncode, checked.stderr) == (0, "")
    else:
        assert (checked.returncode, named) == (INCOMPLETE, {forgotten}), checked.stderr
