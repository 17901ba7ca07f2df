"""A retried request has one effect; a request with If-Match has none on another version."""

import asyncio
from uuid import uuid4

import asyncpg
import pytest
from httpx import AsyncClient, Response
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from messaging.unit_of_work import AFTER_COMMIT
from tests.labour_parts import GRACE, assert_problem, execute, fetch, outbox_types, plan

KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}


async def test_a_retried_request_with_the_same_key_has_one_effect_and_gets_the_same_answer(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)

    first = await labour_client.put(f"{labour}/complete", headers=KEY)
    again = await labour_client.put(f"{labour}/complete", headers=KEY)

    assert (first.status_code, again.status_code) == (200, 200)
    assert first.content == again.content
    assert "idempotency-replayed" not in first.headers
    assert again.headers["idempotency-replayed"] == "true"
    assert await outbox_types(labour_engine) == ["labour.completed"]


@pytest.mark.parametrize("error", [ConnectionResetError(), asyncpg.InterfaceError("connection is closed")], ids=repr)
async def test_a_commit_whose_confirmation_is_lost_is_found_by_a_retry_with_the_same_key(
    labour_client: AsyncClient, labour_engine: AsyncEngine, error: Exception
) -> None:
    labour = await plan(labour_client)

    async def lose_the_answer() -> None:
        raise error

    AFTER_COMMIT.arm(lose_the_answer)
    try:
        lost = await labour_client.put(f"{labour}/complete", headers=KEY)
    finally:
        AFTER_COMMIT.disarm()
    again = await labour_client.put(f"{labour}/complete", headers=KEY)

    assert_problem(lost, 503, "unavailable")
    assert "nothing was changed" not in lost.json()["detail"].lower()  # because it was
    assert (again.status_code, again.headers["idempotency-replayed"]) == (200, "true")
    assert await outbox_types(labour_engine) == ["labour.completed"]


async def test_every_request_that_changes_something_can_be_repeated_with_its_key(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    person = (await labour_client.post(f"{labour}/subscribers", json=GRACE)).json()["id"]
    requests: list[tuple[str, str, object]] = [
        ("POST", f"{labour}/subscribers", {"name": "Alan", "phone": "+12025550199"}),
        ("DELETE", f"{labour}/subscribers/{person}", None),
        ("POST", f"{labour}/updates", {"kind": "announcement", "text": "Soon"}),
        ("POST", f"{labour}/invites", {}),
        ("PUT", f"{labour}/begin", None),
        ("PUT", f"{labour}/complete", None),
        ("POST", "/api/v1/labours", {"mother_name": "Ada"}),
    ]
    for number, (method, path, body) in enumerate(requests):
        answers = [
            await labour_client.request(method, path, json=body, headers={"Idempotency-Key": f"key-{number}"})
            for _ in range(3)
        ]
        assert answers[0].is_success, answers[0].text
        assert {(answer.status_code, answer.content, answer.headers.get("location")) for answer in answers} == {
            (answers[0].status_code, answers[0].content, answers[0].headers.get("location"))
        }
    assert len((await labour_client.get("/api/v1/labours")).json()["items"]) == 2


async def test_a_change_with_if_match_has_its_effect_only_on_the_version_that_was_seen(
    labour_client: AsyncClient,
) -> None:
    labour = await plan(labour_client)
    seen = (await labour_client.get(labour)).headers["etag"]

    begun = await labour_client.put(f"{labour}/begin", headers={"If-Match": seen})
    late = await labour_client.put(f"{labour}/complete", headers={"If-Match": seen})
    current = await labour_client.put(f"{labour}/complete", headers={"If-Match": begun.headers["etag"]})

    assert begun.status_code == 200
    assert_problem(late, 412, "version-changed")
    assert current.status_code == 200
    assert_problem(await labour_client.put(f"{labour}/begin", headers={"If-Match": "v1"}), 400, "bad-if-match")


async def test_of_ten_who_saw_the_same_version_one_may_change_it(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    seen = {"If-Match": (await labour_client.get(labour)).headers["etag"]}
    people = [{"name": f"Person {number}", "phone": f"+1202555010{number}"} for number in range(10)]

    answers = await asyncio.gather(
        *(labour_client.post(f"{labour}/subscribers", json=person, headers=seen) for person in people)
    )

    assert sorted(answer.status_code for answer in answers) == [201] + [412] * 9


async def test_a_key_with_another_request_is_refused_and_a_malformed_one_too(labour_client: AsyncClient) -> None:
    assert (await labour_client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)).status_code == 201

    other_body = await labour_client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=KEY)
    other_path = await labour_client.put(f"/api/v1/labours/{uuid4()}/begin", headers=KEY)

    assert_problem(other_body, 422, "idempotency-key-reused")
    assert_problem(other_path, 422, "idempotency-key-reused")
    for bad in ("", "two words", "x" * 256):
        answer = await labour_client.post(
            "/api/v1/labours", json={"mother_name": "Ada"}, headers={"Idempotency-Key": bad}
        )
        assert_problem(answer, 400, "bad-idempotency-key")


async def test_twenty_requests_with_one_key_at_once_have_one_effect(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    answers = await asyncio.gather(
        *(labour_client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY) for _ in range(20))
    )

    created = [answer for answer in answers if answer.status_code == 201]
    assert len({answer.content for answer in created}) == 1
    for answer in answers:
        if answer.status_code != 201:
            assert_problem(answer, 409, "request-in-flight")
    assert await fetch(labour_engine, "SELECT count(*) FROM labour") == [1]


async def test_a_refused_request_stores_nothing_and_its_key_can_be_used_again(labour_client: AsyncClient) -> None:
    bad = await labour_client.post("/api/v1/labours", json={}, headers=KEY)
    missing = await labour_client.put(f"/api/v1/labours/{uuid4()}/begin", headers=KEY)

    assert_problem(bad, 400, "invalid-request")
    assert_problem(missing, 404, "no-such-labour")
    assert (await labour_client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)).status_code == 201


async def test_no_name_and_no_phone_number_is_stored_with_a_key_and_the_answer_is_the_same_to_the_byte(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client, 'Zoë "the phone" \\ /')
    people = [{"name": f"Grâce {number} \N{BABY}", "phone": f"+1202555010{number}"} for number in range(3)]
    requests: list[tuple[str, str, object]] = [
        *(("POST", f"{labour}/subscribers", person) for person in people),
        ("POST", f"{labour}/updates", {"kind": "status", "text": 'the "phone": null'}),
        ("PUT", f"{labour}/begin", None),
    ]

    async def send(number: int) -> Response:
        method, path, body = requests[number]
        return await labour_client.request(method, path, json=body, headers={"Idempotency-Key": f"key-{number}"})

    first = [await send(number) for number in range(len(requests))]
    person = first[0].json()["id"]
    await labour_client.put(f"{labour}/subscribers/{person}/role", json={"role": "birth-partner"})
    await labour_client.delete(f"{labour}/subscribers/{person}")
    again = [await send(number) for number in range(len(requests))]

    assert [answer.content for answer in again] == [answer.content for answer in first]
    assert {answer.headers["idempotency-replayed"] for answer in again} == {"true"}
    for body in await fetch(labour_engine, "SELECT body FROM idempotency_key"):
        assert b"+1202555" not in body
        assert b"Gr\xc3\xa2ce" not in body


async def test_two_callers_may_choose_the_same_key(labour_client: AsyncClient) -> None:
    answers = [
        await labour_client.post("/api/v1/labours", json={"mother_name": name}, headers={**KEY, **speaking_as(name)})
        for name in ("eve", "ida")
    ]

    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["id"] != answers[1].json()["id"]


async def test_an_expired_key_is_forgotten(labour_client: AsyncClient, labour_engine: AsyncEngine) -> None:
    first = await labour_client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=KEY)
    await labour_client.put(f"{first.headers['location']}/complete")
    await execute(labour_engine, "UPDATE idempotency_key SET expires_at = now() - interval '1 second'")

    second = await labour_client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=KEY)

    assert second.status_code == 201
    assert first.json()["id"] != second.json()["id"]
