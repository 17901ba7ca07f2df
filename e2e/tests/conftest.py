"""Running systems that several test modules share. Each test leaves them as it found them."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from e2e.support.audit_data import AuditedSystem, five_labours
from e2e.support.background_load import BackgroundLoad
from e2e.support.collector import Collector, running_collector
from e2e.support.console_screen import CHROMIUM, Screen, chromium, open_screen
from e2e.support.databases import fresh_databases, through
from e2e.support.installation import Installation, running_installation
from e2e.support.tcp_proxy import TcpProxy, tcp_proxy
from e2e.support.waiting import until
from e2e.support.world import World, running_world
from fern.runtime.postgres import TemporaryServer
from fern.runtime.system import processes_now


@pytest.fixture(scope="package")
def database_proxy(postgres: TemporaryServer) -> Iterator[TcpProxy]:
    """A proxy between the processes of the world and their databases."""
    with tcp_proxy((postgres.host, postgres.port)) as proxy:
        yield proxy


@pytest.fixture(scope="package")
def collector() -> Iterator[Collector]:
    """Receives the spans of the world's processes."""
    with running_collector() as collector:
        yield collector


@pytest.fixture(scope="package")
def world(
    postgres: TemporaryServer,
    database_proxy: TcpProxy,
    collector: Collector,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[World]:
    """A system with every process, on the embedded bus."""
    databases = asyncio.run(fresh_databases(postgres))
    urls = {service: through(database_proxy, url) for service, url in databases.items()}
    environment = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "100"}
    with running_world(tmp_path_factory.mktemp("world"), urls, environment=environment) as world:
        yield world


@pytest.fixture(scope="package")
def google_world(
    postgres: TemporaryServer, google_bus: str, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    """A system with every process, on Google's emulator."""
    databases = asyncio.run(fresh_databases(postgres))
    with running_world(tmp_path_factory.mktemp("google"), databases, google_bus) as world:
        yield world


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is installed; on Debian: apt install chromium")
    with chromium() as browser:
        yield browser


@pytest.fixture
def screen(browser: Browser, installation: Installation) -> Iterator[Screen]:
    """The console of the installation. Faults are cleared and processes healthy afterwards."""
    with open_screen(browser, installation.settings.url("console")) as screen:
        expect(screen.verdict).to_have_class("mark ok")
        yield screen
        screen.button("Clear all faults").click()
        expect(screen.button("Clear all faults")).not_to_have_attribute("aria-busy", "true")
        until(lambda: {row.health for row in processes_now(installation.settings)}, lambda seen: seen == {"healthy"})


@pytest.fixture
def load(world: World) -> Iterator[BackgroundLoad]:
    load = BackgroundLoad(world)
    yield load
    load.stop()


@pytest.fixture(scope="package")
def installation() -> Iterator[Installation]:
    """The whole system as `make up` starts it."""
    with running_installation() as installation:
        yield installation


@pytest.fixture
async def system(labour_url: str, notification_url: str, tmp_path: Path) -> AsyncIterator[AuditedSystem]:
    """Both databases with consistent rows, a provider and a bus, and no process of ours."""
    async with five_labours({"labour": labour_url, "notification": notification_url}, tmp_path) as system:
        yield system
