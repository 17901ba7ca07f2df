"""What the API rests on: commits with their events, news of who was told, phone numbers, and the schema."""

import itertools
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import Event, NotificationDelivered, NotificationFailed, NotificationSent
from contracts.registry import EVENTS, decode
from e2e.support.api import speaking_as
from labour import storage
from labour.application import commands, told
from labour.domain.phone import NotAPhoneNumber, to_e164
from messaging.consumer import Received
from messaging.envelope import Envelope, open_envelope
from messaging.faults import POINTS
from messaging.unit_of_work import UnitsOfWork
from tests.labour_parts import GRACE, assert_problem, outbox_types, plan

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ANY_ENVELOPE = Envelope(uuid7(), "notification", "any", 1, "any", NOW, None, b"")


@pytest.mark.parametrize("order", list(itertools.permutations(range(3))), ids=str)
async def test_whatever_order_the_news_of_a_message_come_in_the_furthest_counts(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, order: tuple[int, ...]
) -> None:
    facts: dict[str, Any] = {"cause_type": "labour.begun", "channel": "sms"}
    facts |= dict.fromkeys(("labour_id", "notification_id", "cause_id", "person_id"), uuid7())
    sent, delivered = NotificationSent(**facts, sent_at=NOW), NotificationDelivered(**facts, delivered_at=NOW)
    arrived: list[Event] = [sent, sent, delivered]
    for number in order:
        async with labour_units() as uow:
            await told.react(uow, [Received(uuid7(), ANY_ENVELOPE, arrived[number])])

    async with labour_engine.connect() as connection:
        rows = await connection.execute(text("SELECT news FROM told"))
        assert list(rows.scalars()) == ["delivered"]


async def test_who_was_told_is_shown_to_the_mother_with_names(
    labour_client: httpx.AsyncClient, labour_units: UnitsOfWork
) -> None:
    labour = await plan(labour_client)
    labour_id = UUID(labour.rpartition("/")[2])
    grace = UUID((await labour_client.post(f"{labour}/subscribers", json=GRACE)).json()["id"])
    facts: dict[str, Any] = {
        "cause_id": uuid7(),
        "cause_type": "labour.begun",
        "channel": "sms",
        "labour_id": labour_id,
    }
    sent = NotificationSent(**facts, notification_id=uuid7(), person_id=grace, sent_at=NOW)
    failed = NotificationFailed(
        **facts, notification_id=uuid7(), person_id=uuid7(), failed_at=NOW, reason="the number is a landline"
    )

    async with labour_units() as uow:
        await told.react(uow, [Received(uuid7(), ANY_ENVELOPE, event) for event in (sent, failed)])

    items = (await labour_client.get(f"{labour}/told")).json()["items"]
    assert [(item["name"], item["news"], item["reason"]) for item in items] == [
        ("Grace", "sent", None),
        ("", "failed", "the number is a landline"),
    ]
    assert_problem(await labour_client.get(f"/api/v1/labours/{uuid4()}/told"), 404, "no-such-labour")


class Crash(BaseException):
    pass


@pytest.mark.parametrize(
    "point", ["uow.after_write_before_events", "uow.before_commit", "uow.after_commit_before_wakeup"]
)
async def test_an_event_exists_if_and_only_if_the_change_committed(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, point: str
) -> None:
    async with labour_units() as uow:
        labour = await commands.plan_labour(storage.Labours(uow, "ada"), mother_name="Ada")

    async def crash() -> None:
        raise Crash

    POINTS[point].arm(crash)
    try:
        with pytest.raises(Crash):
            async with labour_units() as uow:
                await commands.complete_labour(storage.Labours(uow, "ada"), labour.id)
    finally:
        POINTS[point].disarm()

    async with labour_engine.connect() as connection:
        phase = (await connection.execute(text("SELECT phase FROM labour"))).scalar_one()
    committed = point == "uow.after_commit_before_wakeup"
    assert phase == ("complete" if committed else "planned")
    assert await outbox_types(labour_engine) == (["labour.completed"] if committed else [])


@pytest.mark.parametrize(
    ("typed", "wanted"),
    [("+1 (202) 555-0123", "+12025550123"), ("+12025550123", "+12025550123"), ("+44 20 7946 0018", "+442079460018")],
)
def test_a_phone_number_is_brought_to_e164(typed: str, wanted: str) -> None:
    assert to_e164(typed) == wanted


@pytest.mark.parametrize("typed", ["", "hello", "2125550199", "+1202", "+999123456789", "+12125550199 ext 5"])
def test_what_is_no_phone_number_is_refused_without_repeating_it(typed: str) -> None:
    with pytest.raises(NotAPhoneNumber) as refused:
        to_e164(typed)
    assert typed == "" or typed not in str(refused.value)


async def test_everything_that_can_happen_to_a_labour_is_sent_as_its_contract_says(
    labour_client: httpx.AsyncClient, labour_engine: AsyncEngine
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
    await tell("PUT", f"{labour}/complete", {"notes": "Ours"})

    async with labour_engine.connect() as connection:
        rows = await connection.execute(text("SELECT topic, attributes, payload FROM outbox ORDER BY position"))
        sent = [(row.topic, open_envelope(row.attributes, row.payload.encode())) for row in rows]
    for topic, envelope in sent:
        assert decode(envelope.type, envelope.version, envelope.data).type == topic
    theirs = {"notification.sent", "notification.delivered", "notification.failed"}
    assert {topic for topic, _ in sent} == {name for name, _ in EVENTS} - theirs


async def test_the_migrations_make_the_tables_that_the_code_expects(labour_engine: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[Any]:
        found = compare_metadata(MigrationContext.configure(connection), storage.metadata)
        ours = {table.name for table in storage.metadata.sorted_tables}
        return [one for one in found if not _extra(one, ours)]

    async with labour_engine.connect() as connection:
        assert await connection.run_sync(differences) == []


def _extra(difference: Any, ours: set[str]) -> bool:
    """Tables and partial indexes that the database has and the code's metadata need not know."""
    kind = difference[0]
    return kind == "remove_index" or (kind == "remove_table" and difference[1].name not in ours)
