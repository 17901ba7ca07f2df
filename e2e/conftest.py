import asyncio
from collections.abc import Iterator

import pytest

from conftest import fresh_database
from e2e.world import World, a_world
from fern.postgres import TemporaryServer


def databases(server: TemporaryServer) -> dict[str, str]:
    return {service: asyncio.run(fresh_database(server, service)) for service in ("labour", "notification")}


@pytest.fixture(scope="session")
def world(postgres: TemporaryServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[World]:
    """Every process, on the embedded bus; shared by tests that each leave it as they found it."""
    with a_world(tmp_path_factory.mktemp("world"), databases(postgres)) as world:
        yield world


@pytest.fixture(scope="session")
def google_world(
    postgres: TemporaryServer, google_bus: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """The same on Google's emulator."""
    with a_world(tmp_path_factory.mktemp("google"), databases(postgres), google_bus) as world:
        yield world
