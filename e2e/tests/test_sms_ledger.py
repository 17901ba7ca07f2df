"""Messages whose outcome is unknown, and which no policy resolves: an operator lists them and decides with `fern sms`."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from e2e.support.http_server import served
from e2e.support.installation import Installation
from fern.settings import PORTS
from messaging.unit_of_work import UnitsOfWork
from notification.app import build
from notification.delivery import ledger
from tests.sms_parts import PHONE, local_settings, notification


@pytest.fixture
async def notification_api(notification_url: str, bus_host: str, tmp_path: Path) -> AsyncIterator[Installation]:
    """An installation in which only notification-api runs."""
    apis = build(local_settings(notification_url))
    async with served(apis.public), served(apis.operators) as url:
        yield Installation(str(tmp_path), int(url.rpartition(":")[2]) - PORTS["notification-operators"])


async def in_doubt(units: UnitsOfWork) -> str:
    message = notification()
    async with units() as uow:
        await ledger.insert_pending(uow, [message])
        await uow.connection.execute("UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp()")
    return str(message.id)


async def test_an_operator_lists_the_messages_in_doubt_and_decides(
    notification_api: Installation, notification_units: UnitsOfWork
) -> None:
    decisions = {"sent": "SENT", "send-again": "PENDING", "give-up": "FAILED"}
    ids = {decision: await in_doubt(notification_units) for decision in decisions}

    def use_the_command() -> None:
        listed = notification_api.fern("sms", "ls", "--json").stdout
        table = notification_api.fern("sms", "ls").stdout
        resolved = {one: notification_api.fern("sms", "resolve", ids[one], one) for one in decisions}
        too_late = notification_api.fern("sms", "resolve", ids["sent"], "send-again")

        assert {item["id"] for item in json.loads(listed)["items"]} == set(ids.values())
        assert all(notification_id in table for notification_id in ids.values())
        assert PHONE not in table + listed
        for decision, done in resolved.items():
            assert (done.returncode, ids[decision] in done.stdout) == (0, True), done.stderr
        assert too_late.returncode == 1
        assert "not in doubt" in too_late.stderr
        assert "fern sms ls" in too_late.stderr

    await asyncio.to_thread(use_the_command)

    async with notification_units() as uow:
        rows = await uow.connection.fetch("SELECT id::text, state FROM notification")
        assert dict(tuple(row) for row in rows) == {ids[decision]: state for decision, state in decisions.items()}
