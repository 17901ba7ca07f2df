"""What a person does about a message that nobody knows the fate of: see it, decide, and be told when it is too late."""

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from uuid import UUID

import pytest
from sqlalchemy import text
from uuid_utils.compat import uuid7

from e2e.support.http_server import served
from fern.settings import PORTS
from messaging.unit_of_work import UnitsOfWork
from notification.app import build
from notification.delivery import ledger
from notification.domain.notification import Notification
from notification.settings import Settings

Fern = tuple[int, str, str]


@pytest.fixture
async def port_base(notification_url: str, bus_host: str) -> AsyncIterator[int]:
    """The notification-api alone, where `fern` looks for it."""
    settings = Settings.load({"FERN_MODE": "local", "NOTIFICATION_DATABASE_URL": notification_url})
    async with served(build(settings)) as url:
        yield int(url.rpartition(":")[2]) - PORTS["notification-api"]


async def fern(port_base: int, *arguments: str) -> Fern:
    environment = {**os.environ, "FERN_PORT_BASE": str(port_base), "NO_PROXY": "*"}
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "fern", *arguments),
        env=environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    out, err = await asyncio.wait_for(process.communicate(), 240)
    return process.returncode or 0, out.decode(), err.decode()


async def in_doubt(units: UnitsOfWork) -> UUID:
    new_id = uuid7()
    one = Notification(
        id=new_id,
        event_id=uuid7(),
        event_type="labour.begun",
        labour_id=uuid7(),
        person_id=uuid7(),
        person_name="Grace",
        phone="+12025550123",
        body="Ada is in labour. #AAAAAAAA",
        segments=1,
    )
    async with units() as uow:
        await ledger.insert_pending(uow.session, [one])
        await uow.session.execute(text("UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp()"))
    return new_id


async def test_a_person_sees_the_messages_in_doubt_and_decides(port_base: int, notification_units: UnitsOfWork) -> None:
    decisions = {"sent": "SENT", "send-again": "PENDING", "give-up": "FAILED"}
    ids = {decision: str(await in_doubt(notification_units)) for decision in decisions}

    _, shown, _ = await fern(port_base, "sms", "ls", "--json")
    _, table, _ = await fern(port_base, "sms", "ls")
    for decision, notification_id in ids.items():
        code, said, _ = await fern(port_base, "sms", "resolve", notification_id, decision)
        assert (code, notification_id in said) == (0, True)
    code, _, complaint = await fern(port_base, "sms", "resolve", ids["sent"], "send-again")

    assert {item["id"] for item in json.loads(shown)["items"]} == set(ids.values())
    assert all(notification_id in table for notification_id in ids.values())
    assert "+12025550123" not in table + shown
    async with notification_units() as uow:
        rows = await uow.session.execute(text("SELECT id::text, state FROM notification"))
        assert {row.id: row.state for row in rows} == {ids[decision]: state for decision, state in decisions.items()}
    assert code == 1
    assert "not in doubt" in complaint
    assert "fern sms ls" in complaint
