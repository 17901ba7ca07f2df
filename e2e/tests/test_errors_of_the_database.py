"""PostgreSQL quotes values and whole rows in its errors. None of that is in a log line, a dead letter or an answer."""

import traceback
from collections.abc import AsyncIterator, Iterable, MutableMapping
from datetime import UTC, datetime
from typing import Any
from uuid import uuid4

import httpx
import msgspec
import pytest
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.processors import format_exc_info
from structlog.testing import capture_logs
from uuid_utils.compat import uuid7

from contracts.events import LabourAnnounced, SubscriberAdded
from e2e.support.bus import apply_topology, pull_all
from e2e.support.databases import as_owner
from messaging.bus import Message
from messaging.consumer import Verdict
from messaging.database import driver_connection
from messaging.envelope import attributes
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitsOfWork
from notification.consumer import create_consumer

NAMES, PHONE, BODY = ("Theodora", "Wilhelmina"), "+12025550123", "Contractions have slowed"
PRIVATE = (*NAMES, PHONE, BODY)


@pytest.fixture
async def bus(bus_host: str, project: str) -> AsyncIterator[PubSub]:
    await apply_topology(project, {one.type: ["notification"] for one in (SubscriberAdded, LabourAnnounced)})
    bus = PubSub(project)
    yield bus
    await bus.close()


def delivery(event: SubscriberAdded | LabourAnnounced, attempt: int) -> Message:
    context = attributes(
        id=uuid7(),
        source="labour",
        type=event.type,
        version=1,
        subject=str(event.labour_id),
        time=datetime.now(UTC),
        traceparent="",
    )
    return Message(
        f"notification.{event.type}", str(uuid7()), str(uuid4()), msgspec.json.encode(event), context, attempt
    )


def as_text(lines: Iterable[MutableMapping[str, Any]]) -> str:
    """Log lines with the text of their exceptions."""
    return "\n".join(str(format_exc_info(None, "error", line)) for line in lines)


def assert_private(text: str) -> None:
    assert not [word for word in PRIVATE if word in text], text


async def test_a_row_that_the_database_refuses_is_in_no_log_line_and_no_dead_letter(
    notification_url: str, notification_units: UnitsOfWork, bus: PubSub
) -> None:
    labour_id, (name, mother) = uuid7(), NAMES
    added = SubscriberAdded(labour_id=labour_id, roster_version=1, person_id=uuid7(), name=name, phone=PHONE)
    announced = LabourAnnounced(labour_id=labour_id, roster_version=1, mother_name=mother, text=BODY)
    consumer = create_consumer(notification_units, bus, lambda: None)
    last = delivery(announced, attempt=10)

    with capture_logs() as lines:
        await as_owner(notification_url, "ALTER TABLE roster_member ADD CONSTRAINT broken CHECK (false)")
        assert await consumer.handle([delivery(added, attempt=1)]) == [Verdict.NACK]
        await as_owner(notification_url, "ALTER TABLE roster_member DROP CONSTRAINT broken")
        assert await consumer.handle([delivery(added, attempt=2)]) == [Verdict.ACK]
        await as_owner(notification_url, "ALTER TABLE notification ALTER COLUMN lease_until SET NOT NULL")
        assert await consumer.handle([last]) == [Verdict.ACK]

    [dead] = await pull_all(bus, f"{LabourAnnounced.type}.dlq")
    written = as_text(lines)
    assert "CheckViolationError" in written
    assert "null value in column" in dead.attributes["dead-letter-detail"]
    assert_private(written)
    assert_private(str(dead.attributes))


async def test_a_value_that_the_database_refuses_is_in_no_answer_and_no_log_line_of_an_api(
    labour_url: str, labour_client: httpx.AsyncClient
) -> None:
    await as_owner(labour_url, "ALTER TABLE labour ALTER COLUMN mother_name TYPE integer USING 0")

    with capture_logs() as lines:
        answer = await labour_client.post("/api/v1/labours", json={"mother_name": NAMES[0]})

    assert answer.status_code == 500
    assert_private(answer.text)
    written = as_text(lines)
    assert "invalid input for query argument" in written
    assert_private(written)


STATEMENTS: dict[str, tuple[str, list[object]]] = {
    "a row": (
        "INSERT INTO roster_member (labour_id, person_id, name, phone, added_version) VALUES ($1, NULL, $2, $2, 1)",
        [uuid7(), NAMES[0]],
    ),
    "a key": ("INSERT INTO consent (phone, state) SELECT $1, 'ASKED' FROM generate_series(1, 2)", [PHONE]),
    "a text that is no number": ("SELECT CAST(CAST($1 AS text) AS integer)", [BODY]),
    "a JSON": ("SELECT CAST(CAST($1 AS text) AS json)", [NAMES[0]]),
    "an argument of a wrong type": ("SELECT CAST($1 AS integer)", [BODY]),
    "an argument that is no UUID": ("SELECT CAST($1 AS uuid)", [BODY]),
}


@pytest.mark.parametrize("statement", STATEMENTS)
async def test_an_error_of_a_statement_quotes_no_value(notification_engine: AsyncEngine, statement: str) -> None:
    sql, values = STATEMENTS[statement]

    with pytest.raises(Exception) as of_the_driver:  # noqa: PT011
        async with driver_connection(notification_engine) as connection:
            await connection.fetch(sql, *values)
    named = {f"v{number}": value for number, value in enumerate(values, 1)}
    with pytest.raises(Exception) as of_sqlalchemy:  # noqa: PT011
        async with notification_engine.begin() as other:
            await other.execute(text(sql.replace("$", ":v")), named)

    for caught in (of_the_driver, of_sqlalchemy):
        assert_private("".join(traceback.format_exception(caught.value)))
