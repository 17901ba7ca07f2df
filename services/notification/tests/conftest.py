from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from litestar.testing import AsyncTestClient

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
    async with AsyncTestClient(build(local_settings(notification_url))) as api:
        yield api
