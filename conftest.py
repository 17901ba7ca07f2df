"""Fixtures for every test: a real PostgreSQL with fresh databases, and a real bus. And which worker runs which tests."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest
from hypothesis import HealthCheck, settings
from sqlalchemy.ext.asyncio import AsyncEngine
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from e2e.support.api import OPERATOR, PATIENT, async_client, speaking_as
from e2e.support.bus import apply_topology
from e2e.support.databases import fresh_database, migrated_server
from e2e.support.http_server import served
from e2e.support.sample_events import TOPICS
from fern.runtime.postgres import TemporaryServer
from labour.app import build as build_labour
from labour.settings import ApiSettings as LabourSettings
from messaging.database import create_engine
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from pubsub_emulator import google
from pubsub_emulator import server as embedded
from servicekit.http.web import Apis

pytest_plugins = ["e2e.support.quick"]

# For every property test: neither the machine's load nor luck decides.
settings.register_profile("calm", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("calm")

# Test modules that share a running system: one worker runs them, in this order. Every other module is a group of its own.
SHARED_SYSTEMS = {
    "the `world` fixture": (
        "test_crashes",
        "test_journeys",
        "test_ways_in",
        "test_operations",
        "test_metrics_of_processes",
        "test_stopping",
        "test_trace",
        "test_sms_ledger",
        "test_openapi",
        "test_examples",
        "test_recovery",
    ),
    "the `installation` fixture": ("test_new_user", "test_contexts", "test_console", "test_tutorial"),
}
GROUPS = {module: group for group, modules in SHARED_SYSTEMS.items() for module in modules}


class GroupScheduling(LoadScopeScheduling):  # type: ignore[misc]  # untyped
    """Sends each group to one worker, in the order of the collection.

    `--dist loadgroup` with the marker `xdist_group` would do the same, but groups nothing here: pytest-xdist 3.8 passes the group
    on by writing `item._nodeid`, and pytest 9.2 no longer reads that attribute (pytest-dev/pytest-xdist#1386). Neither a marker
    in the module nor one added in a hook changes that. Once it is fixed, add the marker in `pytest_collection_modifyitems`
    (with `tryfirst`, since xdist reads it in the same hook), pass `--dist loadgroup --no-loadscope-reorder`, and delete this.
    """

    def _split_scope(self, nodeid: str) -> str:
        file = nodeid.partition("::")[0]
        return GROUPS.get(Path(file).stem, file)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> GroupScheduling:
    config.option.loadscopereorder = False
    return GroupScheduling(config, log)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start the longest groups first: shared systems, then the other end-to-end tests, then the rest."""
    order = [*GROUPS]

    def rank(item: pytest.Item) -> int:
        if item.path.stem in GROUPS:
            return order.index(item.path.stem)
        return len(order) if item.path.match("e2e/tests/*.py") else len(order) + 1

    items.sort(key=rank)


@pytest.fixture(scope="session")
def postgres(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TemporaryServer]:
    """One server per worker, with the services' roles and their migrated databases as templates."""
    with migrated_server(tmp_path_factory.mktemp("postgres")) as server:
        yield server


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
async def labour_apis(labour_url: str) -> Apis:
    return build_labour(LabourSettings.load({"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, **PATIENT}))


@pytest.fixture
async def labour_client(labour_apis: Apis) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the Labour API behind its real server. The user is Ada, unless a request's headers name another one."""
    async with served(labour_apis.public) as url, async_client(url, speaking_as("ada"), timeout=60) as client:
        yield client


@pytest.fixture
async def labour_operator(labour_apis: Apis, labour_client: httpx.AsyncClient) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the operators' listener of the same process, which may write."""
    async with served(labour_apis.operators) as url, async_client(url, OPERATOR, timeout=60) as client:
        yield client


@pytest.fixture
def project() -> str:
    """A Pub/Sub project for this test alone: topics of its own on a shared bus."""
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
    """The embedded emulator, new for this test."""
    async with embedded.running(tmp_path / "bus") as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
        yield server.target


@pytest.fixture
async def bus(bus_host: str, project: str) -> AsyncIterator[PubSub]:
    """A client of the embedded emulator, with the topics of the sample events."""
    await apply_topology(project, TOPICS)
    bus = PubSub(project)
    yield bus
    await bus.close()


@pytest.fixture(params=BUSES)
def any_bus_host(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The embedded emulator and, if it is installed, Google's."""
    host = str(request.getfixturevalue("google_bus" if request.param == "google" else "bus_host"))
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", host)
    return host
