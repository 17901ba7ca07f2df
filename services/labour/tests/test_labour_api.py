"""The REST API on a real database: what people can do, and what they hear when they cannot."""

import asyncio
import itertools
from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import httpx
import pytest
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts import Event, NotificationDelivered, NotificationFailed, NotificationSent
from fern.postgres import TemporaryServer
from labour import commands, store, told
from labour.app import build
from labour.phone import NotAPhoneNumber, to_e164
from labour.settings import Settings
from messaging.consumer import Received
from messaging.envelope import Envelope
from messaging.faults import POINTS
from messaging.unit_of_work import UnitsOfWork
from tests.support import eventually, served

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ANY_ENVELOPE = Envelope(uuid7(), "notification", "any", 1, "any", NOW, None, b"")
GRACE = {"name": "Grace", "phone": "+1 (202) 555-0123"}


@pytest.fixture
async def client(labour_url: str) -> AsyncIterator[httpx.AsyncClient]:
    app = build(Settings.load({"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url}))
    async with served(app) as url, httpx.AsyncClient(base_url=url) as client:
        yield client


async def plan(client: httpx.AsyncClient, mother_name: str = "Ada") -> str:
    answer = await client.post("/api/v1/labours", json={"mother_name": mother_name})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/v1/labours/{answer.json()['id']}"
    return f"/api/v1/labours/{answer.json()['id']}"


async def outbox_types(engine: AsyncEngine) -> list[str]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT topic FROM outbox ORDER BY position"))).scalars())


def assert_problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"urn:fernlabour:problem:{name}"
    assert problem["status"] == status
    assert problem["detail"]
    return problem


async def test_a_labour_from_plan_to_complete(client: httpx.AsyncClient, labour_engine: AsyncEngine) -> None:
    labour = await plan(client)

    grace = await client.post(f"{labour}/subscribers", json=GRACE)
    begun = await client.put(f"{labour}/begin")
    complete = await client.put(f"{labour}/complete")

    assert (grace.status_code, grace.json()["phone"]) == (201, "+12025550123")
    assert (begun.status_code, begun.json()["phase"]) == (200, "early")
    assert (complete.status_code, complete.json()["phase"]) == (200, "complete")
    assert complete.json() == (await client.get(labour)).json()
    assert complete.json()["subscribers"] == [grace.json()]
    assert await outbox_types(labour_engine) == ["subscriber.added", "labour.begun", "labour.completed"]


async def test_somebody_who_leaves_is_gone_and_it_is_told(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)
    grace = (await client.post(f"{labour}/subscribers", json=GRACE)).json()

    assert (await client.delete(f"{labour}/subscribers/{grace['id']}")).status_code == 204

    assert (await client.get(labour)).json()["subscribers"] == []
    assert await outbox_types(labour_engine) == ["subscriber.added", "subscriber.removed"]
    assert_problem(await client.delete(f"{labour}/subscribers/{grace['id']}"), 404, "not-subscribed")


async def test_an_announcement_is_kept_told_and_cooled_down(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)

    announced = await client.post(f"{labour}/announcements", json={"text": " Nearly there! "})
    refused = await client.post(f"{labour}/announcements", json={"text": "Really!"})

    assert (announced.status_code, announced.json()["text"]) == (201, "Nearly there!")
    assert_problem(refused, 429, "too-soon")
    assert 1 <= int(refused.headers["retry-after"]) <= 10
    assert (await client.get(f"{labour}/announcements")).json()["items"] == [announced.json()]
    assert await outbox_types(labour_engine) == ["labour.announced"]
    assert_problem(await client.get(f"/api/v1/labours/{uuid4()}/announcements"), 404, "no-such-labour")


async def test_contractions_lead_from_a_plan_to_advice_and_phases(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)
    begin = datetime.now(UTC) - timedelta(minutes=89)
    for number in range(30):
        start = begin + timedelta(minutes=3 * number)
        started = await client.post(f"{labour}/contractions", json={"started_at": start.isoformat()})
        assert started.status_code == 201, started.text
        end = {"ended_at": (start + timedelta(seconds=95)).isoformat(), "intensity": 8}
        ended = await client.put(f"{labour}/contractions/{started.json()['id']}/end", json=end)
        assert ended.status_code == 200, ended.text
    running = (await client.post(f"{labour}/contractions", json={})).json()

    assert (await client.get(labour)).json()["phase"] == "transition"
    advice = (await client.get(f"{labour}/advice")).json()["items"]
    assert [item["kind"] for item in advice] == ["go-to-hospital"]
    assert_problem(await client.put(f"{labour}/complete"), 409, "contraction-running")
    assert_problem(await client.post(f"{labour}/contractions", json={}), 409, "contraction-running")
    assert (await client.delete(f"{labour}/contractions/{running['id']}")).status_code == 204
    first = (await client.get(f"{labour}/contractions")).json()["items"][0]
    corrected = await client.patch(f"{labour}/contractions/{first['id']}", json={"intensity": 9})
    assert corrected.json() == {**first, "intensity": 9}
    backwards = {"ended_at": first["started_at"]}
    impossible = await client.patch(f"{labour}/contractions/{first['id']}", json=backwards)
    assert_problem(impossible, 422, "impossible-times")
    assert_problem(await client.delete(f"{labour}/contractions/{uuid4()}"), 404, "no-such-contraction")
    naive = await client.post(f"{labour}/contractions", json={"started_at": "2026-01-01T00:00:00"})
    assert_problem(naive, 400, "invalid-request")
    assert (await client.put(f"{labour}/pushing")).json()["phase"] == "pushing"
    types = await outbox_types(labour_engine)
    assert types[:2] == ["labour.begun", "contraction.started"]
    assert types.count("labour.phase-changed") == 2  # transition at once, then pushing


async def test_two_phones_starting_a_contraction_at_once_start_one(client: httpx.AsyncClient) -> None:
    labour = await plan(client)

    answers = await asyncio.gather(*(client.post(f"{labour}/contractions", json={}) for _ in range(6)))

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5
    assert len((await client.get(f"{labour}/contractions")).json()["items"]) == 1


async def test_ten_people_completing_at_once_make_one_event(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)

    answers = await asyncio.gather(*(client.put(f"{labour}/complete") for _ in range(10)))

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert await outbox_types(labour_engine) == ["labour.completed"]


async def test_people_subscribing_at_once_all_get_in_with_versions_in_order(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)
    people = [{"name": f"Person {number}", "phone": f"+1202555010{number}"} for number in range(5)]

    answers = await asyncio.gather(*(client.post(f"{labour}/subscribers", json=person) for person in people))

    assert [answer.status_code for answer in answers] == [201] * 5
    async with labour_engine.connect() as connection:
        versions = await connection.execute(
            text("SELECT (payload::json->>'roster_version')::int FROM outbox ORDER BY position")
        )
        assert list(versions.scalars()) == [1, 2, 3, 4, 5]


KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}


async def test_a_retried_request_with_the_same_key_has_one_effect_and_gets_the_same_answer(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)

    first = await client.put(f"{labour}/complete", headers=KEY)
    again = await client.put(f"{labour}/complete", headers=KEY)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await outbox_types(labour_engine) == ["labour.completed"]


async def test_every_request_that_changes_something_can_be_repeated_with_its_key(client: httpx.AsyncClient) -> None:
    labour = await plan(client)
    person = (await client.post(f"{labour}/subscribers", json=GRACE)).json()["id"]
    requests: list[tuple[str, str, object]] = [
        ("POST", "/api/v1/labours", {"mother_name": "Eve"}),
        ("POST", f"{labour}/subscribers", {"name": "Alan", "phone": "+12025550199"}),
        ("DELETE", f"{labour}/subscribers/{person}", None),
        ("POST", f"{labour}/announcements", {"text": "Soon"}),
        ("PUT", f"{labour}/begin", None),
        ("PUT", f"{labour}/complete", None),
    ]
    for number, (method, path, body) in enumerate(requests):
        answers = [
            await client.request(method, path, json=body, headers={"Idempotency-Key": f"key-{number}"})
            for _ in range(3)
        ]
        assert answers[0].is_success, answers[0].text
        assert {(answer.status_code, answer.content, answer.headers.get("location")) for answer in answers} == {
            (answers[0].status_code, answers[0].content, answers[0].headers.get("location"))
        }
    assert len((await client.get("/api/v1/labours")).json()["items"]) == 2


async def test_a_change_with_if_match_has_its_effect_only_on_the_version_that_was_seen(
    client: httpx.AsyncClient,
) -> None:
    labour = await plan(client)
    seen = (await client.get(labour)).headers["etag"]

    begun = await client.put(f"{labour}/begin", headers={"If-Match": seen})
    late = await client.put(f"{labour}/complete", headers={"If-Match": seen})
    current = await client.put(f"{labour}/complete", headers={"If-Match": begun.headers["etag"]})

    assert begun.status_code == 200
    assert_problem(late, 412, "version-changed")
    assert current.status_code == 200
    assert_problem(await client.put(f"{labour}/begin", headers={"If-Match": "v1"}), 400, "bad-if-match")


async def test_of_ten_who_saw_the_same_version_one_may_change_it(client: httpx.AsyncClient) -> None:
    labour = await plan(client)
    seen = {"If-Match": (await client.get(labour)).headers["etag"]}
    people = [{"name": f"Person {number}", "phone": f"+1202555010{number}"} for number in range(10)]

    answers = await asyncio.gather(
        *(client.post(f"{labour}/subscribers", json=person, headers=seen) for person in people)
    )

    assert sorted(answer.status_code for answer in answers) == [201] + [412] * 9


async def test_a_key_with_another_request_is_refused_and_a_malformed_one_too(client: httpx.AsyncClient) -> None:
    assert (await client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)).status_code == 201

    other_body = await client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=KEY)
    other_path = await client.put(f"/api/v1/labours/{uuid4()}/begin", headers=KEY)

    assert_problem(other_body, 422, "idempotency-key-reused")
    assert_problem(other_path, 422, "idempotency-key-reused")
    for bad in ("", "two words", "x" * 256):
        answer = await client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers={"Idempotency-Key": bad})
        assert_problem(answer, 400, "bad-idempotency-key")


async def test_twenty_requests_with_one_key_at_once_have_one_effect(
    client: httpx.AsyncClient, labour_engine: AsyncEngine
) -> None:
    answers = await asyncio.gather(
        *(client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY) for _ in range(20))
    )

    created = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.content for answer in created}) == 1
    for answer in answers:
        if answer.status_code != 201:
            assert_problem(answer, 409, "request-in-flight")
    async with labour_engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM labour"))).scalar_one() == 1


async def test_a_refused_request_stores_nothing_and_its_key_can_be_used_again(client: httpx.AsyncClient) -> None:
    bad = await client.post("/api/v1/labours", json={}, headers=KEY)
    missing = await client.put(f"/api/v1/labours/{uuid4()}/begin", headers=KEY)

    assert_problem(bad, 400, "invalid-request")
    assert_problem(missing, 404, "no-such-labour")
    assert (await client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)).status_code == 201


async def test_an_expired_key_is_forgotten(client: httpx.AsyncClient, labour_engine: AsyncEngine) -> None:
    first = await client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)
    async with labour_engine.begin() as connection:
        await connection.execute(text("UPDATE idempotency_key SET expires_at = now() - interval '1 second'"))

    second = await client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=KEY)

    assert second.status_code == 201
    assert first.json()["id"] != second.json()["id"]


async def test_labours_are_listed_newest_first_page_by_page(client: httpx.AsyncClient) -> None:
    for name in ("first", "second", "third"):
        await plan(client, name)

    page = (await client.get("/api/v1/labours", params={"limit": 2})).json()
    rest = (await client.get("/api/v1/labours", params={"limit": 2, "after": page["next"]})).json()

    assert [item["mother_name"] for item in page["items"] + rest["items"]] == ["third", "second", "first"]
    assert rest["next"] is None


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({}, "mother_name"),
        ({"mother_name": ""}, "mother_name"),
        ({"mother_name": "   "}, "mother_name"),
        ({"mother_name": "A\nB"}, "mother_name"),
        ({"mother_name": 7}, "mother_name"),
        ({"mother_name": "x" * 101}, "mother_name"),
        ({"mother_name": "Ada", "due": "soon"}, "due"),
    ],
)
async def test_a_bad_body_is_refused_with_the_field(client: httpx.AsyncClient, body: object, field: str) -> None:
    problem = assert_problem(await client.post("/api/v1/labours", json=body), 400, "invalid-request")

    assert field in problem["detail"]


async def test_every_refusal_is_a_problem_with_a_stable_type(client: httpx.AsyncClient) -> None:
    labour = await plan(client)
    await client.post(f"{labour}/subscribers", json=GRACE)
    await client.put(f"{labour}/begin")

    assert_problem(await client.put(f"{labour}/begin"), 409, "labour-already-begun")
    assert_problem(await client.post(f"{labour}/subscribers", json=GRACE), 409, "already-subscribed")
    bad = assert_problem(
        await client.post(f"{labour}/subscribers", json={"name": "Alan", "phone": "555"}), 400, "not-a-phone-number"
    )
    assert bad["fields"][0]["field"] == "phone"
    assert "555" not in bad["detail"].replace("+12025550123", "")
    await client.put(f"{labour}/complete")
    assert_problem(await client.put(f"{labour}/complete"), 409, "labour-already-completed")
    assert_problem(await client.get(f"/api/v1/labours/{uuid4()}"), 404, "no-such-labour")
    assert_problem(await client.get("/api/v1/labours/not-an-id"), 404, "not-found")
    assert_problem(await client.get("/nowhere"), 404, "not-found")
    assert_problem(await client.patch("/api/v1/labours"), 405, "method-not-allowed")
    assert_problem(await client.post("/api/v1/labours", content=b"{"), 400, "invalid-request")
    assert_problem(await client.post("/api/v1/labours", json={"mother_name": "x" * 200_000}), 413, "too-large")


async def test_every_answer_is_hardened_also_the_refusals(client: httpx.AsyncClient) -> None:
    for answer in (
        await client.get("/api/v1/labours"),
        await client.get("/nowhere"),
        await client.put("/api/v1/labours"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


async def test_operations_need_the_token_and_show_no_payload(client: httpx.AsyncClient) -> None:
    labour = await plan(client)
    await client.post(f"{labour}/subscribers", json=GRACE)
    route, key = "/operations/outbox", {"ordering_key": labour.rpartition("/")[2]}

    assert_problem(await client.get(route, params=key), 401, "not-authorized")
    assert_problem(
        await client.get(route, params=key, headers={"Authorization": "Bearer wrong"}), 401, "not-authorized"
    )
    shown = await client.get(route, params=key, headers={"Authorization": "Bearer local-operations"})

    assert [row["type"] for row in shown.json()["items"]] == ["subscriber.added"]
    assert "2025550123" not in shown.text
    missing = await client.post(f"{route}/{uuid4()}/retry", headers={"Authorization": "Bearer local-operations"})
    assert_problem(missing, 404, "no-pending-event")


async def test_readiness_follows_the_database_and_a_request_meanwhile_is_told_to_come_back(
    client: httpx.AsyncClient, postgres: TemporaryServer
) -> None:
    assert (await client.get("/health/ready")).status_code == 200
    await asyncio.to_thread(postgres.stop)
    try:
        assert_problem(await client.get("/health/ready"), 503, "not-ready")
        assert (await client.get("/health/live")).status_code == 200
        refused = await client.post("/api/v1/labours", json={"mother_name": "Ada"})
        assert_problem(refused, 503, "unavailable")
        assert refused.headers["retry-after"] == "1"
    finally:
        await asyncio.to_thread(postgres.start)

    async def ready() -> bool:
        return (await client.get("/health/ready")).status_code == 200

    await eventually(ready, "ready again")
    await plan(client)


async def test_the_trace_of_a_request_reaches_the_outbox(client: httpx.AsyncClient, labour_engine: AsyncEngine) -> None:
    trace_id = "a" * 32
    labour = await plan(client)

    await client.put(f"{labour}/begin", headers={"traceparent": f"00-{trace_id}-{'b' * 16}-01"})

    async with labour_engine.connect() as connection:
        row = await connection.execute(text("SELECT attributes->>'ce-traceparent' FROM outbox"))
        assert row.scalar_one().split("-")[1] == trace_id


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


async def test_who_was_told_is_shown_with_the_names_of_those_who_are_still_there(
    client: httpx.AsyncClient, labour_units: UnitsOfWork
) -> None:
    labour = await plan(client)
    labour_id = UUID(labour.rpartition("/")[2])
    grace = UUID((await client.post(f"{labour}/subscribers", json=GRACE)).json()["id"])
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

    items = (await client.get(f"{labour}/told")).json()["items"]
    assert [(item["name"], item["news"], item["reason"]) for item in items] == [
        ("Grace", "sent", None),
        (None, "failed", "the number is a landline"),
    ]
    assert_problem(await client.get(f"/api/v1/labours/{uuid4()}/told"), 404, "no-such-labour")


class Crash(BaseException):
    pass


@pytest.mark.parametrize(
    "point", ["uow.after_write_before_events", "uow.before_commit", "uow.after_commit_before_hint"]
)
async def test_an_event_exists_if_and_only_if_the_change_committed(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, point: str
) -> None:
    async with labour_units() as uow:
        labour = await commands.plan_labour(store.Labours(uow), mother_name="Ada")

    async def crash() -> None:
        raise Crash

    POINTS[point].arm(crash)
    try:
        with pytest.raises(Crash):
            async with labour_units() as uow:
                await commands.complete_labour(store.Labours(uow), labour.id)
    finally:
        POINTS[point].disarm()

    async with labour_engine.connect() as connection:
        phase = (await connection.execute(text("SELECT phase FROM labour"))).scalar_one()
    committed = point == "uow.after_commit_before_hint"
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


async def test_the_migrations_make_the_tables_that_the_code_expects(labour_engine: AsyncEngine) -> None:
    def differences(connection: Connection) -> list[Any]:
        found = compare_metadata(MigrationContext.configure(connection), store.metadata)
        ours = {table.name for table in store.metadata.sorted_tables}
        return [one for one in found if not _extra(one, ours)]

    async with labour_engine.connect() as connection:
        assert await connection.run_sync(differences) == []


def _extra(difference: Any, ours: set[str]) -> bool:
    """Tables and partial indexes that the database has and the code's metadata need not know."""
    kind = difference[0]
    return kind == "remove_index" or (kind == "remove_table" and difference[1].name not in ours)
