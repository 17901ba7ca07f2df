from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from httpx import AsyncClient
from litestar.testing import AsyncTestClient

from e2e.support.api import OPERATOR, async_client
from e2e.support.http_server import served
from messaging.faults import POINTS
from messaging.unit_of_work import UnitsOfWork
from notification.app import build

from .sms_parts import Api, PostOffice, local_settings, post_office


@pytest.fixture
async def office(notification_units: UnitsOfWork, tmp_path: Path) -> AsyncIterator[PostOffice]:
    async with post_office(notification_units, tmp_path / "sms") as office:
        yield office
    for point in POINTS.values():
        point.disarm()


@pytest.fixture
async def api(notification_url: str, bus_host: str) -> AsyncIterator[Api]:
    apis = build(local_settings(notification_url))
    async with AsyncTestClient(apis.public, base_url="http://127.0.0.1") as api:
        yield api


@pytest.fixture
async def operator(notification_url: str, bus_host: str) -> AsyncIterator[AsyncClient]:
    """A client of the operators' listener, which may write."""
    apis = build(local_settings(notification_url))
    async with served(apis.public), served(apis.operators) as url, async_client(url, OPERATOR) as operator:
        yield operator
