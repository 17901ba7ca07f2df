"""One system for all tests of this folder: another project name, other ports and its own FERN_HOME, all deleted at the end."""

import os
import tempfile
import time
from collections.abc import Iterator

import pytest

from e2e.docker.system import System, figures
from e2e.support.ports import free_port_base
from fern.runtime.engine import find_engine, require_engine
from fern.settings import Settings

UP_TIMEOUT = 1200.0  # seconds; the first time, images are pulled and built


@pytest.fixture(scope="session")
def system() -> Iterator[System]:
    engine = find_engine()
    require_engine(engine)
    figures["engine"] = engine.detail
    with tempfile.TemporaryDirectory(prefix="fern-docker-") as home:
        own = {"FERN_HOME": home, "FERN_PORT_BASE": str(free_port_base()), "COMPOSE_PROJECT_NAME": "fernlabour-test"}
        before = dict(os.environ)
        os.environ.update(own)
        system = System(Settings.load())
        began = time.monotonic()
        try:
            system.fern("up", "--docker", timeout=UP_TIMEOUT)
            figures["from nothing to healthy"] = f"{time.monotonic() - began:.0f} s"
            yield system
        finally:
            system.fern("reset", "--yes")
            os.environ.clear()
            os.environ.update(before)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    terminalreporter.section("figures")
    for name, figure in figures.items():
        terminalreporter.write_line(f"{name}: {figure}")
