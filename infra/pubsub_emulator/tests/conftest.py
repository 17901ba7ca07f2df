from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from pubsub_emulator import google
from pubsub_emulator.server import Running, running, started

from .parts import Bus, connected

JAR = google.find()


@pytest.fixture(scope="session")
def googles_target() -> Iterator[str]:
    """The address of Google's emulator: one process for all tests."""
    assert JAR
    with google.running(JAR) as target:
        yield target


@pytest.fixture
async def emulator(tmp_path: Path) -> AsyncIterator[Running]:
    """Our emulator, started for this test alone."""
    async with running(tmp_path / "pubsub") as embedded:
        yield embedded


@pytest.fixture
def emulator_process(tmp_path: Path) -> Iterator[str]:
    """Our emulator as a process of its own, for clients that have no event loop."""
    with started(tmp_path / "pubsub") as process:
        yield process.target


@pytest.fixture
async def ours(emulator: Running, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Bus]:
    async with connected(emulator.target, monkeypatch) as bus:
        yield bus


@pytest.fixture(
    params=["ours", pytest.param("googles", marks=pytest.mark.skipif(JAR is None, reason="Google's is not installed"))]
)
async def bus(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> AsyncIterator[Bus]:
    """Each emulator in turn: the contract is for both."""
    if request.param == "googles":
        async with connected(request.getfixturevalue("googles_target"), monkeypatch, google=True) as googles:
            yield googles
    else:
        async with running(tmp_path / "pubsub") as embedded, connected(embedded.target, monkeypatch) as own:
            yield own


@pytest.fixture
async def buses(ours: Bus, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[list[Bus]]:
    """Both emulators at once, for cases that only wait."""
    if JAR is None:
        yield [ours]
    else:
        async with connected(request.getfixturevalue("googles_target"), monkeypatch, google=True) as googles:
            yield [ours, googles]
