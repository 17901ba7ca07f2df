"""`--quick`: only the tests that need no running system.

A test is quick unless it uses one of the fixtures in STARTING, directly or through another fixture or a parameter, or is marked
`system` because it starts something in its own body. A quick test that starts a server or a process fails in every run.
"""

import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

# Fixtures that start PostgreSQL, a bus, the SMS sandbox, a browser or processes of ours, or take ports for them.
STARTING = {
    "any_bus_host",
    "browser",
    "bus",
    "bus_host",
    "emulator",
    "emulator_process",
    "google_bus",
    "google_world",
    "googles_target",
    "installation",
    "postgres",
    "receiver",
    "runtime",
    "server",
    "settings",
    "sms",
    "world",
}


def is_quick(item: pytest.Item) -> bool:
    parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
    used = {*getattr(item, "fixturenames", ()), *(value for value in parameters if isinstance(value, str))}
    return not used & STARTING and item.get_closest_marker("system") is None


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--quick", action="store_true", help="run only the tests that need no running system")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("quick"):
        config.hook.pytest_deselected(items=[item for item in items if not is_quick(item)])
        items[:] = [item for item in items if is_quick(item)]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup(item: pytest.Item) -> Iterator[None]:
    with guarded(item):
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    with guarded(item):
        return (yield)


@contextmanager
def guarded(item: pytest.Item) -> Iterator[None]:
    """Make listening on a socket and starting a program an error, if the test is a quick one."""
    if not is_quick(item):
        yield
        return

    def refuse(what: str) -> None:
        pytest.fail(f"{what} in a quick test: mark the test `system`, or add its fixture to e2e/support/quick.py")

    start = subprocess.Popen.__init__

    def checked(self: subprocess.Popen[Any], args: Any, *rest: Any, **options: Any) -> None:
        program = str(args if isinstance(args, str) else args[0])
        # The programs that a test makes for itself are in the folder for temporary files.
        if program != "git" and not Path(program).is_relative_to(tempfile.gettempdir()):
            refuse(f"{program} was started")
        start(self, args, *rest, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(subprocess.Popen, "__init__", checked)
        patch.setattr(socket.socket, "listen", lambda *_: refuse("a server was started"))
        yield
