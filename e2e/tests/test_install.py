"""What `make` installs and with which Python: running needs no development tool, and an unsupported Python is refused."""

import ast
import os
import re
import shutil
import subprocess
import sys
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TOOLS = ("awk", "cat", "env", "grep", "ln", "make", "mkdir", "rm", "sed", "sh", "tee", "touch")


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==(\S+)", (ROOT / lock).read_text(), flags=re.MULTILINE))


def programs() -> set[Path]:
    """Everything that `make` runs with the running lock: our code without tests, and the experiments with their support.

    The programs that make the pictures of the documentation drive a browser, and are for developers only; so is `fern alerts`,
    which says so. `infra/checks` has a lock of its own.
    """
    folders = ("shared", "services", "infra", "e2e/experiments")
    found, waiting = set[Path](), [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    for name in ("animation", "pictures", "chapter_pictures"):
        waiting.remove(ROOT / f"e2e/experiments/{name}.py")
    waiting = [path for path in waiting if path.parent != ROOT / "e2e/experiments/alerts"]
    while waiting:
        path = waiting.pop()
        if path in found or "tests" in path.parts or path.parent == ROOT / "infra/checks":
            continue
        found.add(path)
        files = [ROOT / f"{module.replace('.', '/')}.py" for module in imported(path) if module.startswith("e2e.")]
        waiting += [file for file in files if file.exists()]
    return found


@cache
def imported(path: Path) -> list[str]:
    """Full names; of `from a import b` both `a` and `a.b`, which may be a module."""
    found = list[str]()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found += [name.name for name in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found += [node.module, *(f"{node.module}.{name.name}" for name in node.names)]
    return found


def test_the_development_lock_has_the_versions_of_the_running_one_and_more() -> None:
    running, developing = pins("requirements.lock"), pins("requirements-dev.lock")

    assert running.items() <= developing.items()
    assert {"mypy", "playwright", "pytest", "ruff", "uv"} <= developing.keys() - running.keys()


def test_no_lock_contains_a_url_so_any_package_index_will_do() -> None:
    locks = [*ROOT.glob("*.lock"), *ROOT.glob("services/*/*.lock"), *ROOT.glob("infra/*/*.lock")]

    assert len(locks) >= 5
    assert [lock for lock in locks if "://" in lock.read_text()] == []


def test_what_people_run_imports_no_development_tool_and_no_test() -> None:
    locked = pins("requirements.lock").keys()
    distributions = packages_distributions()

    files = programs()
    ours = {part for path in files for part in path.relative_to(ROOT).parts[:-1]}

    def runs(module: str) -> bool:
        names = {re.sub(r"[-_.]+", "-", name).lower() for name in distributions.get(module, ())}
        return module in ours | sys.stdlib_module_names or bool(names & locked)

    found = {(str(path.relative_to(ROOT)), module.partition(".")[0]) for path in files for module in imported(path)}
    assert [(path, module) for path, module in sorted(found) if not runs(module)] == []


def make(home: Path, pythons: dict[str, str], target: str, given: str) -> subprocess.CompletedProcess[str]:
    """On a PATH with a few tools and these Pythons, each of which tells its version and can make `home`/venv."""
    for tool in TOOLS:
        (home / tool).symlink_to(shutil.which(tool) or tool)
    for name, version in pythons.items():
        make_venv = '[ "$2" = venv ] && mkdir -p "$4/bin" && ln -s "$0" "$4/bin/python"'
        (home / name).write_text(f'#!/bin/sh\n[ "$1" = -c ] && echo {version}\n{make_venv}\nexit 0\n')
        (home / name).chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "PYTHON")}
    command = [str(home / "make"), f"VENV={home}/venv", target, *([f"PYTHON={home / given}"] if given else [])]
    environment["PATH"] = str(home)
    return subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=60)


@pytest.mark.parametrize(
    ("pythons", "given", "chosen"),
    [
        ({"python3": "3.12", "python3.14": "3.14"}, "", "python3"),
        ({"python3": "3.15", "python3.13": "3.13", "python3.11": "3.11"}, "", "python3.13"),
        ({"python3": "3.9", "python3.11": "3.11"}, "", "python3.11"),
        ({"python3.12": "3.12", "python3.14": "3.14"}, "", "python3.14"),
        ({"python3": "3.12", "my python": "3.11"}, "my python", "my python"),
    ],
)
def test_a_supported_python_is_chosen(tmp_path: Path, pythons: dict[str, str], given: str, chosen: str) -> None:
    done = make(tmp_path, pythons, "install", given)

    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "venv/bin/python").readlink() == tmp_path / chosen


@pytest.mark.parametrize(
    ("pythons", "given", "problem"),
    [
        ({"python3": "3.15"}, "", r"python3 is Python 3\.15, which is too new: .* has no wheel for it\."),
        ({"python3": "3.10"}, "", r"python3 is Python 3\.10, which is too old\."),
        ({"python3": "2.7"}, "", r"python3 is Python 2\.7, which is too old\."),
        ({}, "", r"no Python found \(tried: python3 .*\)\."),
        ({"python3": "3.12", "newest": "3.15"}, "newest", r"/.*/newest is Python 3\.15, which is too new: .*\."),
    ],
)
def test_any_other_is_refused_with_a_way_out(tmp_path: Path, pythons: dict[str, str], given: str, problem: str) -> None:
    done = make(tmp_path, pythons, "up", given)

    assert re.search(rf"^error: {problem} Python 3\.11 to 3\.14 are supported\.$", done.stderr, flags=re.MULTILINE)
    assert "\ntry:   make up PYTHON=/path/to/python3.14\n" in done.stderr
    assert '\nor:    uv python install 3.14 && make up PYTHON="$(uv python find 3.14)"\n' in done.stderr
    assert "Error 12" in done.stderr  # make itself always ends with 2
    assert not (tmp_path / "venv").exists()
