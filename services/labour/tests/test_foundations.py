"""Commits with their events, the delivery status of messages, phone numbers, and the schema of the database."""

import itertools
from typing import Any
from uuid import UUID, uuid4

import asyncpg
import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import (
    Event,
    NotificationDelivered,
    NotificationFailed,
    NotificationSent,
    NotificationSuperseded,
)
from contracts.registry import EVENTS, decode
from e2e.support.api import speaking_as
from e2e.support.crash import crash_at
from e2e.support.databases import fresh_database
from e2e.support.schema import schema_differences
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer
from labour import storage
from labour.application import commands, told
from labour.application.access import CommandContext
from labour.domain.errors import LabourError
from labour.http.problems import PROBLEMS
from messaging.consumer import Received
from messaging.envelope import Envelope, open_envelope
from messaging.errors import LockHeld
from messaging.faults import POINTS
from messaging.unit_of_work import UnitsOfWork
from servicekit.idempotency import KeyReused
from tests.labour_parts import GRACE, NOW, assert_problem, fetch, message_facts, outbox_types, plan

ANY_ENVELOPE = Envelope(uuid7(), "notification", "any", 1, "any", NOW, None, b"")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
async def test_in_any_order_of_arrival_the_highest_ranked_status_of_a_message_is_kept(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, order: tuple[int, ...]
) -> None:
    facts = message_facts()
    sent, delivered = NotificationSent(**facts, sent_at=NOW), NotificationDelivered(**facts, delivered_at=NOW)
    arrived: list[Event] = [sent, sent, delivered]
    for number in order:
        async with labour_units() as uow:
            await told.react(uow, [Received(uuid7(), ANY_ENVELOPE, arrived[number])])

    assert await fetch(labour_engine, "SELECT status FROM told") == ["delivered"]


@pytest.mark.parametrize("arrived", [("superseded", "sent"), ("sent", "superseded")])
async def test_a_superseded_message_that_was_sent_after_all_is_sent(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, arrived: tuple[str, str]
) -> None:
    facts = message_facts()
    events: dict[str, Event] = {
        "superseded": NotificationSuperseded(**facts, superseded_at=NOW, reason="a newer message was sent instead"),
        "sent": NotificationSent(**facts, sent_at=NOW),
    }
    seen = []
    for status in arrived:
        async with labour_units() as uow:
            await told.react(uow, [Received(uuid7(), ANY_ENVELOPE, events[status])])
        seen += await fetch(labour_engine, "SELECT status FROM told")

    assert seen == [arrived[0], "sent"]


async def test_the_mother_reads_the_status_of_each_message_with_names(
    labour_client: AsyncClient, labour_units: UnitsOfWork
) -> None:
    labour = await plan(labour_client)
    labour_id = UUID(labour.rpartition("/")[2])
    grace = UUID((await labour_client.post(f"{labour}/subscribers", json=GRACE)).json()["id"])
    sent = NotificationSent(**message_facts(labour_id=labour_id, person_id=grace), sent_at=NOW)
    reason = "the number is a landline"
    failed = NotificationFailed(**message_facts(labour_id=labour_id), failed_at=NOW, reason=reason)
    superseded = NotificationSuperseded(**message_facts(labour_id=labour_id), superseded_at=NOW, reason=reason)

    async with labour_units() as uow:
        await told.react(uow, [Received(uuid7(), ANY_ENVELOPE, event) for event in (sent, failed, superseded)])

    items = (await labour_client.get(f"{labour}/told")).json()["items"]
    shown = [(item["name"], item["status"], item["news"], item["reason"]) for item in items]
    assert shown == [
        ("Grace", "sent", "sent", None),
        ("", "failed", "failed", reason),
        ("", "superseded", "superseded", reason),
    ]
    assert_problem(await labour_client.get(f"/api/v1/labours/{uuid4()}/told"), 404, "no-such-labour")


async def test_the_old_name_of_the_status_is_documented_as_deprecated(labour_client: AsyncClient) -> None:
    schema = (await labour_client.get("/schema/openapi.json")).json()

    fields = schema["components"]["schemas"]["ToldView"]["properties"]
    assert schema["info"]["version"] == "1.1"
    assert [name for name, field in fields.items() if field.get("deprecated")] == ["news"]


async def test_the_migration_of_the_status_keeps_the_rows_written_before_it(postgres: TemporaryServer) -> None:
    url = await fresh_database(postgres, "labour", template="template1")
    migrate("labour", url, "0002")
    database = await asyncpg.connect(url.replace("+asyncpg", ""))
    before = (*(uuid7() for _ in range(4)), "labour.begun", "sms", "failed", 2, NOW, "the number is a landline")
    values = ", ".join(f"${number}" for number in range(1, 11))
    await database.execute(f"INSERT INTO told VALUES ({values})", *before)

    migrate("labour", url)

    [after] = await database.fetch("SELECT * FROM told")
    assert (tuple(after.values()), after["status"]) == (before, "failed")
    with pytest.raises(asyncpg.CheckViolationError, match="told_status_check"):
        await database.execute("UPDATE told SET status = 'lost'")
    await database.close()


@pytest.mark.parametrize(
    "point", ["uow.after_write_before_events", "uow.before_commit", "uow.after_commit_before_wakeup"]
)
async def test_an_event_exists_if_and_only_if_the_change_committed(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, point: str
) -> None:
    async with labour_units() as uow:
        labour = await commands.plan_labour(CommandContext(uow, "ada"), mother_name="Ada")

    with crash_at(POINTS[point]):
        async with labour_units() as uow:
            await commands.complete_labour(CommandContext(uow, "ada"), labour.id)

    committed = point == "uow.after_commit_before_wakeup"
    assert await fetch(labour_engine, "SELECT phase FROM labour") == ["complete" if committed else "planned"]
    assert await outbox_types(labour_engine) == (["labour.completed"] if committed else [])


def test_every_error_of_the_service_is_mapped_to_a_problem() -> None:
    assert set(LabourError.__subclasses__()) == set(PROBLEMS) - {LockHeld, KeyReused}


async def test_everything_that_can_happen_to_a_labour_is_sent_as_its_contract_says(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)

    async def tell(method: str, path: str, body: object = None, who: str = "ada") -> Any:
        answer = await labour_client.request(method, path, json=body, headers=speaking_as(who))
        assert answer.is_success, f"{method} {path}: {answer.text}"
        return answer.json() if answer.content else None

    invite = await tell("POST", f"{labour}/invites", {})
    people = [
        await tell("POST", "/api/v1/subscriptions", {"token": invite["token"], "name": who, "phone": phone}, who)
        for who, phone in (("grace", "+12025550123"), ("alan", "+12025550199"))
    ]
    grace, alan = (f"{labour}/subscribers/{one['id']}" for one in people)
    await tell("DELETE", f"{labour}/invites/{invite['id']}")
    await tell("PUT", f"{grace}/role", {"role": "birth-partner"})
    await tell("PUT", f"{grace}/approve")
    await tell("PUT", f"{alan}/block")
    await tell("PUT", f"{alan}/unblock")
    contraction = await tell("POST", f"{labour}/contractions", {"started_at": "2026-01-01T00:00:00Z"})
    one = f"{labour}/contractions/{contraction['id']}"
    await tell("PUT", f"{one}/end", {"ended_at": "2026-01-01T00:01:00Z", "intensity": 5})
    await tell("PATCH", one, {"intensity": 6})
    await tell("DELETE", one)
    await tell("POST", f"{labour}/updates", {"kind": "announcement", "text": "Soon"})
    status = await tell("POST", f"{labour}/updates", {"kind": "status", "text": "Resting"})
    await tell("DELETE", f"{labour}/updates/{status['id']}")
    await tell("PUT", f"{labour}/pushing")
    await tell("DELETE", grace)
    await tell("PUT", f"{labour}/complete", {"notes": "Ours", "baby_name": "Ida"})

    rows = await fetch(labour_engine, "SELECT topic, attributes, payload FROM outbox ORDER BY position")
    sent = [(row.topic, open_envelope(row.attributes, row.payload.encode())) for row in rows]
    for topic, envelope in sent:
        assert decode(envelope.type, envelope.version, envelope.data).type == topic
    theirs = {"notification.sent", "notification.delivered", "notification.failed", "notification.superseded"}
    assert {topic for topic, _ in sent} == {name for name, _ in EVENTS} - theirs


async def test_the_migrations_make_the_tables_that_the_code_expects(labour_engine: AsyncEngine) -> None:
    assert await schema_differences(labour_engine, storage.metadata) == []
