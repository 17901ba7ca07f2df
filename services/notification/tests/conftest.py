from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from messaging.faults import POINTS
from messaging.unit_of_work import UnitsOfWork

from .sms_parts import PostOffice, post_office


@pytest.fixture
async def office(notification_units: UnitsOfWork, tmp_path: Path) -> AsyncIterator[PostOffice]:
    async with post_office(notification_units, tmp_path / "sms") as office:
        yield office
    for point in POINTS.values():
        point.disarm()
