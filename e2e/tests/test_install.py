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
    """Everything that `make` runs with the running lock: our code without tests, and the experiments with their support."""
    folders = ("shared", "services", "infra", "e2e/experiments")
    found, waiting = set[Path](), [path for folder in folders for path in ROOT.glob(f"{folder}/**/*.py")]
    while waiting:
        path = waiting.pop()
        if path in found or "tests" in path.parts:
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


class Machine:
    """A PATH with make, a shell and the Pythons that a test puts there. These only note what they are called for."""

    def __init__(self, home: Path) -> None:
        self.bin, self.venv, self.calls = home / "bin", home / "venv", home / "calls"
        self.bin.mkdir()
        for tool in TOOLS:
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)

    def python(self, name: str, version: str) -> str:
        script = self.bin / name
        script.write_text(
            f'#!/bin/sh\necho "{name} $*" >> {self.calls}\n'
            f'[ "$1" = -c ] && echo {version}\n'
            f'[ "$2" = venv ] && mkdir -p {self.venv}/bin && ln -sf "{script}" {self.venv}/bin/python\nexit 0\n'
        )
        script.chmod(0o755)
        return str(script)

    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(self.bin / "make"), "--no-print-directory", f"VENV={self.venv}", *arguments]
        clean = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS", "PYTHON")}
        return subprocess.run(
            command,
            cwd=ROOT,
            env=clean | {"PATH": str(self.bin)},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )

    def made_with(self) -> list[str]:
        return re.findall(r"^(\S+) -m venv", self.calls.read_text(), flags=re.MULTILINE)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


@pytest.mark.parametrize(
    ("pythons", "chosen"),
    [
        ({"python3": "3.12", "python3.14": "3.14"}, "python3"),
        ({"python3": "3.15", "python3.13": "3.13", "python3.11": "3.11"}, "python3.13"),
        ({"python3": "3.9", "python3.11": "3.11"}, "python3.11"),
        ({"python3.12": "3.12", "python3.14": "3.14"}, "python3.14"),
    ],
)
def test_a_supported_python_is_chosen(machine: Machine, pythons: dict[str, str], chosen: str) -> None:
    for name, version in pythons.items():
        machine.python(name, version)

    done = machine.make("install")

    assert done.returncode == 0, done.stdout + done.stderr
    assert machine.made_with() == [chosen]


def test_a_given_python_is_taken_before_any_other(machine: Machine) -> None:
    machine.python("python3", "3.12")
    given = machine.python("my python", "3.11")

    assert machine.make("install", f"PYTHON={given}").returncode == 0
    assert "my python -m venv" in machine.calls.read_text()


@pytest.mark.parametrize(
    ("pythons", "problem"),
    [
        ({"python3": "3.15"}, r"python3 is Python 3\.15, which is too new: .* has no wheel for it\."),
        ({"python3": "3.10"}, r"python3 is Python 3\.10, which is too old\."),
        ({"python3": "2.7"}, r"python3 is Python 2\.7, which is too old\."),
        ({}, r"no Python found \(tried: python3 .*\)\."),
    ],
)
def test_any_other_python_is_refused_with_a_way_out(machine: Machine, pythons: dict[str, str], problem: str) -> None:
    for name, version in pythons.items():
        machine.python(name, version)

    done = machine.make("up")

    assert re.search(rf"^error: {problem} Python 3\.11 to 3\.14 are supported\.$", done.stderr, flags=re.MULTILINE)
    assert "\ntry:   make up PYTHON=/path/to/python3.14\n" in done.stderr
    assert '\nor:    uv python install 3.14 && make up PYTHON="$(uv python find 3.14)"\n' in done.stderr
    assert "Error 12" in done.stderr  # make itself always ends with 2
    assert not machine.venv.exists()


def test_a_given_python_that_is_not_supported_is_refused_even_if_another_would_do(machine: Machine) -> None:
    machine.python("python3", "3.12")
    given = machine.python("newest", "3.15")

    done = machine.make("up", f"PYTHON={given}")

    assert f"error: {given} is Python 3.15, which is too new" in done.stderr
    assert not machine.venv.exists()
