"""Which process runs which tests, and fixtures for everyone: a real PostgreSQL with fresh databases, and a real bus."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import asyncpg
import httpx
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy.ext.asyncio import AsyncEngine
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from e2e.support.tools import served
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, temporary_server
from fern.tokens import make_token
from labour.app import build as labour_app
from labour.settings import Settings as LabourSettings
from messaging.database import create_engine
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from pubsub_emulator import google
from pubsub_emulator import server as embedded

pytest_plugins = ["e2e.support.quick"]

# For every property test: neither the machine's load nor luck decides.
settings.register_profile("calm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

# Tests that share a running system: one process has them all, in this order. All others go by file.
SHARING = {
    "a world": (
        "test_crashes",
        "test_journeys",
        "test_operations",
        "test_stopping",
        "test_trace",
        "test_sms_ledger",
        "test_openapi",
    ),
    "what make up has started": ("test_new_user", "test_console", "test_tutorial"),
}
GROUPS = {file: group for group, files in SHARING.items() for file in files}


def group(nodeid: str) -> str:
    file = nodeid.partition("::")[0]
    return GROUPS.get(Path(file).stem, file)


class Grouped(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    def _split_scope(self, nodeid: str) -> str:
        return group(nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> Grouped:
    config.option.loadscopereorder = False
    return Grouped(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest begins first."""
    order = [*GROUPS]

    def rank(item: pytest.Item) -> int:
        if item.path.stem in GROUPS:
            return order.index(item.path.stem)
        return len(order) if item.path.parent.name == "e2e" else len(order) + 1

    items.sort(key=rank)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
    """One server per test process, with the services' roles and their migrated databases as templates."""
    with temporary_server(tmp_path_factory.mktemp("postgres")) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        for service in ("labour", "notification"):
            migrate(service, server.url(service, service))
        yield server


async def fresh_database(server: TemporaryServer, service: str, template: str | None = None) -> str:
    """A copy of the service's migrated database, or of `template`, as its role sees it."""
    name = f"{service}_{uuid4().hex}"
    admin = await asyncpg.connect(server.dsn())
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template or service} OWNER {service}")
    finally:
        await admin.close()
    return server.url(name, service)


@pytest.fixture
async def labour_url(postgres: TemporaryServer) -> str:
    return await fresh_database(postgres, "labour")


@pytest.fixture
async def notification_url(postgres: TemporaryServer) -> str:
    return await fresh_database(postgres, "notification")


@pytest.fixture
async def labour_engine(labour_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(labour_url, process="test", pool_size=40, connect_timeout=60)
    yield engine
    await engine.dispose()


@pytest.fixture
async def notification_engine(notification_url: str) -> AsyncIterator[AsyncEngine]:
    engine = create_engine(notification_url, process="test", pool_size=40, connect_timeout=60)
    yield engine
    await engine.dispose()


def units_of_work(engine: AsyncEngine, source: str) -> UnitsOfWork:
    return lambda: UnitOfWork(engine, source=source, committed=lambda: None)


@pytest.fixture
def labour_units(labour_engine: AsyncEngine) -> UnitsOfWork:
    return units_of_work(labour_engine, "labour")


@pytest.fixture
def notification_units(notification_engine: AsyncEngine) -> UnitsOfWork:
    return units_of_work(notification_engine, "notification")


@pytest.fixture
async def labour_client(labour_url: str) -> AsyncIterator[httpx.AsyncClient]:
    """The Labour API behind its real server; Ada speaks, unless a request says otherwise."""
    app = labour_app(LabourSettings.load({"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url}))
    ada = {"Authorization": f"Bearer {make_token('ada')}"}
    async with served(app) as url, httpx.AsyncClient(base_url=url, headers=ada, timeout=60) as client:
        yield client


@pytest.fixture
def project() -> str:
    """Every test has its own topics on the shared bus."""
    return f"test-{uuid4().hex[:12]}"


BUSES = ["embedded", "google"] if google.find() else ["embedded"]


@pytest.fixture(scope="session")
def google_bus() -> Iterator[str]:
    jar = google.find()
    assert jar is not None
    with google.running(jar) as target:
        yield target


@pytest.fixture
async def bus_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[str]:
    """The embedded emulator, fresh for this test."""
    async with embedded.running(tmp_path / "bus") as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
        yield server.target


@pytest.fixture(params=BUSES)
async def any_bus_host(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """Our emulator and, where it is installed, Google's."""
    if request.param == "google":
        host = request.getfixturevalue("google_bus")
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
        yield host
    else:
        async with embedded.running(tmp_path / "bus") as server:
            monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
            yield server.target
