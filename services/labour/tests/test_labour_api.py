"""The REST API on a real database: every command, and the problem when it is refused."""

import asyncio
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from tests.labour_parts import GRACE, assert_problem, execute, fetch, outbox_types, plan


async def test_a_labour_from_plan_to_complete(labour_client: AsyncClient, labour_engine: AsyncEngine) -> None:
    labour = await plan(labour_client)

    grace = await labour_client.post(f"{labour}/subscribers", json=GRACE)
    begun = await labour_client.put(f"{labour}/begin")
    complete = await labour_client.put(f"{labour}/complete")

    assert (grace.status_code, grace.json()["phone"]) == (201, "+12025550123")
    assert (begun.status_code, begun.json()["phase"]) == (200, "early")
    assert (complete.status_code, complete.json()["phase"]) == (200, "complete")
    assert complete.json() == (await labour_client.get(labour)).json()
    assert complete.json()["subscribers"] == [grace.json()]
    assert (grace.json()["state"], grace.json()["role"]) == ("approved", "family-and-friends")
    assert await outbox_types(labour_engine) == ["subscriber.added", "labour.begun", "labour.completed"]


async def test_a_removed_subscriber_is_no_longer_shown_and_an_event_says_so(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    grace = (await labour_client.post(f"{labour}/subscribers", json=GRACE)).json()

    assert (await labour_client.delete(f"{labour}/subscribers/{grace['id']}")).status_code == 204

    assert (await labour_client.get(labour)).json()["subscribers"] == []
    assert await outbox_types(labour_engine) == ["subscriber.added", "subscriber.removed"]
    assert_problem(await labour_client.delete(f"{labour}/subscribers/{grace['id']}"), 409, "not-possible-now")


async def test_updates_are_told_shown_or_kept_to_oneself(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)

    said = {
        kind: (await labour_client.post(f"{labour}/updates", json={"kind": kind, "text": f" {kind}! "})).json()
        for kind in ("announcement", "status", "private")
    }
    too_soon = await labour_client.post(f"{labour}/updates", json={"kind": "announcement", "text": "Really!"})

    assert said["announcement"]["text"] == "announcement!"
    assert_problem(too_soon, 429, "too-soon")
    assert 1 <= int(too_soon.headers["retry-after"]) <= 10
    assert (await labour_client.get(f"{labour}/updates")).json()["items"] == list(reversed(said.values()))
    assert await outbox_types(labour_engine) == ["labour.announced", "labour.status-posted"]
    unsaid = await labour_client.delete(f"{labour}/updates/{said['announcement']['id']}")
    assert_problem(unsaid, 409, "announcement-sent")
    for kind in ("status", "private"):
        assert (await labour_client.delete(f"{labour}/updates/{said[kind]['id']}")).status_code == 204
    assert (await labour_client.get(f"{labour}/updates")).json()["items"] == [said["announcement"]]
    assert (await outbox_types(labour_engine))[2:] == ["labour.status-removed"]
    assert_problem(await labour_client.delete(f"{labour}/updates/{uuid4()}"), 404, "no-such-update")


async def test_a_mother_has_one_unfinished_labour_at_a_time_also_when_she_taps_ten_times(
    labour_client: AsyncClient,
) -> None:
    answers = await asyncio.gather(
        *(labour_client.post("/api/v1/labours", json={"mother_name": "Ada"}) for _ in range(10))
    )

    [planned] = [answer for answer in answers if answer.status_code == 201]
    for answer in answers:
        if answer is not planned:
            problem = assert_problem(answer, 409, "unfinished-labour")
            assert problem["labour_id"] == planned.json()["id"]
    notes = {"notes": "A long night."}
    complete = await labour_client.put(f"{planned.headers['location']}/complete", json=notes)
    assert complete.json()["notes"] == "A long night."
    await plan(labour_client)


async def test_contractions_lead_from_a_plan_to_advice_and_phases(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    begin = datetime.now(UTC) - timedelta(minutes=89)
    for number in range(30):
        start = begin + timedelta(minutes=3 * number)
        started = await labour_client.post(f"{labour}/contractions", json={"started_at": start.isoformat()})
        assert started.status_code == 201, started.text
        end = {"ended_at": (start + timedelta(seconds=95)).isoformat(), "intensity": 8}
        ended = await labour_client.put(f"{labour}/contractions/{started.json()['id']}/end", json=end)
        assert ended.status_code == 200, ended.text
    running = (await labour_client.post(f"{labour}/contractions", json={})).json()

    assert (await labour_client.get(labour)).json()["phase"] == "transition"
    advice = (await labour_client.get(f"{labour}/advice")).json()["items"]
    assert [item["kind"] for item in advice] == ["go-to-hospital"]
    assert_problem(await labour_client.put(f"{labour}/complete"), 409, "contraction-running")
    assert_problem(await labour_client.post(f"{labour}/contractions", json={}), 409, "contraction-running")
    assert (await labour_client.delete(f"{labour}/contractions/{running['id']}")).status_code == 204
    first = (await labour_client.get(f"{labour}/contractions")).json()["items"][0]
    corrected = await labour_client.patch(f"{labour}/contractions/{first['id']}", json={"intensity": 9})
    assert corrected.json() == {**first, "intensity": 9}
    backwards = {"ended_at": first["started_at"]}
    impossible = await labour_client.patch(f"{labour}/contractions/{first['id']}", json=backwards)
    assert_problem(impossible, 422, "impossible-times")
    assert_problem(await labour_client.delete(f"{labour}/contractions/{uuid4()}"), 404, "no-such-contraction")
    naive = await labour_client.post(f"{labour}/contractions", json={"started_at": "2026-01-01T00:00:00"})
    assert_problem(naive, 400, "invalid-request")
    assert (await labour_client.put(f"{labour}/pushing")).json()["phase"] == "pushing"
    types = await outbox_types(labour_engine)
    assert types[:2] == ["labour.begun", "contraction.started"]
    assert types.count("labour.phase-changed") == 2  # transition at once, then pushing


async def test_two_phones_starting_a_contraction_at_once_start_one(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)

    answers = await asyncio.gather(*(labour_client.post(f"{labour}/contractions", json={}) for _ in range(6)))

    assert sorted(answer.status_code for answer in answers) == [201] + [409] * 5
    assert len((await labour_client.get(f"{labour}/contractions")).json()["items"]) == 1


async def test_ten_people_completing_at_once_make_one_event(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)

    answers = await asyncio.gather(*(labour_client.put(f"{labour}/complete") for _ in range(10)))

    assert sorted(answer.status_code for answer in answers) == [200] + [409] * 9
    assert await outbox_types(labour_engine) == ["labour.completed"]


async def test_people_subscribing_at_once_all_get_in_with_versions_in_order(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    people = [{"name": f"Person {number}", "phone": f"+1202555010{number}"} for number in range(5)]

    answers = await asyncio.gather(*(labour_client.post(f"{labour}/subscribers", json=person) for person in people))

    assert [answer.status_code for answer in answers] == [201] * 5
    added = (
        "SELECT (payload::json->>'roster_version')::int FROM outbox WHERE topic = 'subscriber.added' ORDER BY position"
    )
    assert await fetch(labour_engine, added) == [1, 2, 3, 4, 5]


async def test_labours_are_listed_newest_first_page_by_page(labour_client: AsyncClient) -> None:
    for name in ("first", "second", "third"):
        await labour_client.put(f"{await plan(labour_client, name)}/complete")

    page = (await labour_client.get("/api/v1/labours", params={"limit": 2})).json()
    rest = (await labour_client.get("/api/v1/labours", params={"limit": 2, "after": page["next"]})).json()

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
async def test_a_bad_body_is_refused_with_the_field(labour_client: AsyncClient, body: object, field: str) -> None:
    problem = assert_problem(await labour_client.post("/api/v1/labours", json=body), 400, "invalid-request")

    assert field in problem["detail"]


async def test_every_refusal_is_a_problem_with_a_stable_type(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    await labour_client.post(f"{labour}/subscribers", json=GRACE)
    await labour_client.put(f"{labour}/begin")

    assert_problem(await labour_client.put(f"{labour}/begin"), 409, "labour-already-begun")
    assert_problem(await labour_client.post(f"{labour}/subscribers", json=GRACE), 409, "already-subscribed")
    bad = assert_problem(
        await labour_client.post(f"{labour}/subscribers", json={"name": "Alan", "phone": "555"}),
        400,
        "not-a-phone-number",
    )
    assert bad["fields"][0]["field"] == "phone"
    assert "555" not in bad["detail"].replace("+12025550123", "")
    await labour_client.put(f"{labour}/complete")
    assert_problem(await labour_client.put(f"{labour}/complete"), 409, "labour-already-completed")
    assert_problem(await labour_client.get(f"/api/v1/labours/{uuid4()}"), 404, "no-such-labour")
    assert_problem(await labour_client.get("/api/v1/labours/not-an-id"), 404, "not-found")
    assert_problem(await labour_client.get("/nowhere"), 404, "not-found")
    assert_problem(await labour_client.patch("/api/v1/labours"), 405, "method-not-allowed")
    assert_problem(await labour_client.post("/api/v1/labours", content=b"{"), 400, "invalid-request")
    assert_problem(await labour_client.post("/api/v1/labours", json={"mother_name": "x" * 200_000}), 413, "too-large")


async def test_every_answer_is_hardened_also_the_refusals(labour_client: AsyncClient) -> None:
    for answer in (
        await labour_client.get("/api/v1/labours"),
        await labour_client.get("/nowhere"),
        await labour_client.put("/api/v1/labours"),
    ):
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cache-control"] == "no-store"
        assert "server" not in answer.headers
        assert "access-control-allow-origin" not in answer.headers


async def test_operations_show_no_payload(labour_client: AsyncClient, labour_operator: AsyncClient) -> None:
    labour = await plan(labour_client)
    await labour_client.post(f"{labour}/subscribers", json=GRACE)
    route, key = "/operations/outbox", {"ordering_key": labour.rpartition("/")[2]}

    shown = await labour_operator.get(route, params=key)

    assert [row["type"] for row in shown.json()["items"]] == ["labour.planned", "subscriber.added"]
    assert "2025550123" not in shown.text
    missing = await labour_operator.post(f"{route}/{uuid4()}/retry")
    assert_problem(missing, 404, "no-pending-event")


async def test_readiness_follows_the_database_and_a_request_meanwhile_is_told_to_come_back(
    labour_client: AsyncClient, postgres: TemporaryServer
) -> None:
    assert (await labour_client.get("/health/ready")).status_code == 200
    await asyncio.to_thread(postgres.stop)
    try:
        assert_problem(await labour_client.get("/health/ready"), 503, "not-ready")
        assert (await labour_client.get("/health/live")).status_code == 200
        refused = await labour_client.post("/api/v1/labours", json={"mother_name": "Ada"})
        assert_problem(refused, 503, "unavailable")
        assert refused.headers["retry-after"] == "1"
    finally:
        await asyncio.to_thread(postgres.start)

    async def ready() -> bool:
        return (await labour_client.get("/health/ready")).status_code == 200

    await eventually(ready, what="ready again")
    await plan(labour_client)


async def test_an_event_tells_which_request_it_came_from_and_what_it_made_of_the_labour(
    labour_client: AsyncClient, labour_operator: AsyncClient
) -> None:
    trace_id = "a" * 32
    labour = await plan(labour_client)
    said = {"traceparent": f"00-{trace_id}-{'b' * 16}-01", "Idempotency-Key": '"one-tap"', "X-Phone": "+12025550123"}
    begun = (await labour_client.put(f"{labour}/begin", headers=said)).json()

    newest = await labour_operator.get("/operations/outbox", params={"newest": True, "limit": 1})

    [row] = newest.json()["items"]
    assert row["type"] == "labour.begun"
    assert row["traceparent"].split("-")[1] == trace_id
    assert row["aggregate_version"] == begun["version"] == 2
    assert {name: row["request"][name] for name in ("method", "path", "idempotency_key")} == {
        "method": "PUT",
        "path": labour + "/begin",
        "idempotency_key": "one-tap",
    }
    same = await labour_operator.get("/operations/outbox", params={"event_id": row["event_id"]})
    assert same.json()["items"] == [row]


async def test_an_operator_sees_how_much_is_where(
    labour_client: AsyncClient, labour_operator: AsyncClient, labour_engine: AsyncEngine
) -> None:
    await plan(labour_client)
    await execute(labour_engine, "UPDATE outbox SET recorded_at = recorded_at - interval '1 hour'")

    waiting = (await labour_operator.get("/operations/pipeline")).json()["outbox"]
    shown = await labour_operator.get("/operations/totals")

    outbox = shown.json()["outbox"]
    assert 3600 < waiting.pop("oldest_waiting_seconds") <= outbox.pop("oldest_waiting_seconds") < 3700
    assert waiting == {"waiting": 1, "parked": 0}
    assert outbox == {"recorded": 1, "published": 0, "waiting": 1, "parked": 0, "discarded": 0}
    assert shown.json()["claims"] == {"completed": 0, "discarded": 0, "repeats": 0}
    assert (shown.json()["topics"], shown.json()["held"]) == ({"labour.planned": 1}, {})
