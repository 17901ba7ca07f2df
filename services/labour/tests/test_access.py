"""Authorisation: every route with every kind of caller, and what each of them may read. Authentication: tokens."""

import asyncio
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
from httpx import AsyncClient
from structlog.testing import capture_logs

from e2e.support.api import speaking_as
from e2e.support.key_server import key_server
from e2e.support.security_events import expected_events, security_events
from labour.settings import ApiSettings
from messaging.errors import SettingsError
from servicekit.http import security_log
from tests.labour_parts import api_process, assert_problem, plan

ALAN = {"name": "Alan", "phone": "+12025550199"}


@dataclass
class House:
    """Ada's labour. Grace is a subscriber, Paula a birth partner, Alan's request is not approved, Stella is a stranger."""

    client: AsyncClient
    labour: str
    people: dict[str, str]

    async def ask(self, who: str | None, method: str, path: str, body: object = None) -> httpx.Response:
        headers = speaking_as(who) if who else {"Authorization": ""}
        if path.endswith("/events"):
            return await self._open(path, headers)
        return await self.client.request(method, path, json=body, headers=headers)

    async def _open(self, path: str, headers: dict[str, str]) -> httpx.Response:
        """The answer of a live stream. It never ends, so only its beginning is read, unless the stream is refused."""
        async with self.client.stream("GET", path, headers=headers) as answer:
            if answer.is_error:
                await answer.aread()
            return answer


@pytest.fixture
async def house(labour_client: AsyncClient) -> House:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]
    people = {}
    for number, name in enumerate(("grace", "paula", "alan")):
        body = {"token": token, "name": name.title(), "phone": f"+1202555010{number}"}
        asked = await labour_client.post(SUBSCRIPTIONS, json=body, headers=speaking_as(name))
        assert asked.status_code == 201, asked.text
        people[name] = asked.json()["id"]
    for name in ("grace", "paula"):
        await labour_client.put(f"{labour}/subscribers/{people[name]}/approve")
    await labour_client.put(f"{labour}/subscribers/{people['paula']}/role", json={"role": "birth-partner"})
    return House(labour_client, labour, people)


CALLERS = ("ada", "paula", "grace", "alan", "stella", None)
Expected = dict[str | None, tuple[int, ...]]
DONE, REFUSED = (200, 201, 204), (401,)
MOTHER = {"ada": DONE, "paula": (403,), "grace": (403,), "alan": (404,), "stella": (404,), None: REFUSED}
PARTNERS = {**MOTHER, "paula": DONE}
SUBSCRIBERS = {**PARTNERS, "grace": DONE}
ANY_CALLER = {**dict.fromkeys(CALLERS, DONE), None: REFUSED}
NOT_FOUND = {**MOTHER, "ada": (404,)}  # the mother may, but what she names does not exist
NO_SUBSCRIPTION: Expected = {**dict.fromkeys(CALLERS, (404,)), None: REFUSED}
SOME = uuid4()
LABOURS, SUBSCRIPTIONS = "/api/v1/labours", "/api/v1/subscriptions"
ONE = f"{LABOURS}/{{labour_id}}"
PERSON, CONTRACTION = f"{ONE}/subscribers/{{subscriber_id}}", f"{ONE}/contractions/{{contraction_id}}"

# Every route under /api: the status for each caller, and a body if the route needs one. `{…}` is filled in.
ROUTES: dict[tuple[str, str], tuple[Expected, object]] = {
    ("GET", LABOURS): (ANY_CALLER, None),
    ("POST", LABOURS): ({**ANY_CALLER, "ada": (409,)}, {"mother_name": "Me"}),
    ("GET", ONE): (SUBSCRIBERS, None),
    ("GET", f"{ONE}/events"): (SUBSCRIBERS, None),
    ("GET", f"{ONE}/updates"): (SUBSCRIBERS, None),
    ("GET", f"{ONE}/contractions"): (PARTNERS, None),
    ("GET", f"{ONE}/advice"): (PARTNERS, None),
    ("GET", f"{ONE}/statistics"): (PARTNERS, None),
    ("GET", f"{ONE}/told"): (MOTHER, None),
    ("GET", f"{ONE}/invites"): (MOTHER, None),
    ("POST", f"{ONE}/invites"): (MOTHER, {}),
    ("DELETE", f"{ONE}/invites/{{invite_id}}"): (NOT_FOUND, None),
    ("POST", f"{ONE}/updates"): (MOTHER, {"kind": "status", "text": "Hello"}),
    ("DELETE", f"{ONE}/updates/{{update_id}}"): (NOT_FOUND, None),
    ("POST", f"{ONE}/subscribers"): (MOTHER, ALAN),
    ("PUT", f"{PERSON}/approve"): (NOT_FOUND, None),
    ("PUT", f"{PERSON}/block"): (NOT_FOUND, None),
    ("PUT", f"{PERSON}/unblock"): (NOT_FOUND, None),
    ("PUT", f"{PERSON}/role"): (NOT_FOUND, {"role": "birth-partner"}),
    ("DELETE", PERSON): (NOT_FOUND, None),
    ("PUT", f"{ONE}/begin"): (MOTHER, None),
    ("POST", f"{ONE}/contractions"): (MOTHER, {}),
    ("PUT", f"{CONTRACTION}/end"): (NOT_FOUND, {"intensity": 5}),
    ("PATCH", CONTRACTION): (NOT_FOUND, {"intensity": 5}),
    ("DELETE", CONTRACTION): (NOT_FOUND, None),
    ("PUT", f"{ONE}/pushing"): (MOTHER, None),
    ("PUT", f"{ONE}/complete"): ({**MOTHER, "ada": (409,)}, None),  # the contraction started above still runs
    ("GET", SUBSCRIPTIONS): (ANY_CALLER, None),
    ("POST", SUBSCRIPTIONS): (NO_SUBSCRIPTION, {"token": "x" * 43, **ALAN}),
    ("PUT", f"{SUBSCRIPTIONS}/{{subscriber_id}}/leave"): (NO_SUBSCRIPTION, None),
}


async def test_every_route_says_who_may_holds_to_it_and_logs_each_refusal(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(security_log, "LINES_PER_SECOND", 1_000_000)
    schema = (await house.client.get("/schema/openapi.json")).json()
    declared = {
        (method.upper(), path) for path, item in schema["paths"].items() for method in item if path.startswith("/api/")
    }
    assert declared == set(ROUTES), "a route without a row, or a row without a route"

    for (method, path), (expected, body) in ROUTES.items():
        filled = path.replace(ONE, house.labour)
        for name in ("invite_id", "update_id", "subscriber_id", "contraction_id"):
            filled = filled.replace(f"{{{name}}}", str(SOME))
        for who in reversed(CALLERS):  # the mother last: her changes affect what the others get
            with capture_logs() as logs:
                answer = await house.ask(who, method, filled, body)
            assert answer.status_code in expected[who], f"{who}: {method} {path} → {answer.status_code}"
            documented = schema["paths"][path][method.lower()]["responses"][str(answer.status_code)]
            if answer.is_error:
                assert f"`{answer.json()['type'].rpartition(':')[2]}`" in documented["description"]
                assert answer.headers["content-type"].startswith("application/problem+json")
            events = security_events(logs)
            named = [one.pop("caller", None) is not None for one in events]
            assert events == expected_events(answer, method, path, hidden=True)
            assert named == ([who is not None] if events else [])
            assert house.labour.rpartition("/")[2] not in str(events)
            assert ALAN["phone"] not in str(events)


async def test_a_labour_that_does_not_exist_and_one_that_is_hidden_have_one_answer_and_the_log_has_the_second_only(
    house: House,
) -> None:
    for method, path in (("GET", ""), ("PUT", "/begin"), ("GET", "/events")):
        with capture_logs() as logs:
            hidden = await house.ask("stella", method, f"{house.labour}{path}")
            absent = await house.ask("stella", method, f"{LABOURS}/{SOME}{path}")

        [event] = security_events(logs)
        assert (event["kind"], event["status"], event["reason"]) == ("access-refused", 404, "no-such-labour")
        assert hidden.status_code == absent.status_code == 404
        assert hidden.json() | {"detail": ""} == absent.json() | {"detail": ""}


async def test_a_subscriber_reads_the_course_of_the_labour_and_nothing_about_other_subscribers(house: House) -> None:
    for kind in ("private", "status"):
        await house.client.post(f"{house.labour}/updates", json={"kind": kind, "text": f"a {kind} word"})

    labour = await house.ask("grace", "GET", house.labour)
    updates = await house.ask("grace", "GET", f"{house.labour}/updates")

    assert set(labour.json()) == {"id", "mother_name", "phase", "begun_at", "completed_at", "view"}
    assert "etag" not in labour.headers  # it would change with each contraction
    assert [item["text"] for item in updates.json()["items"]] == ["a status word"]
    assert "+1202" not in labour.text + updates.text


async def test_a_subscription_from_the_request_to_leaving_as_its_owner_sees_it(house: House) -> None:
    [own] = (await house.ask("alan", "GET", SUBSCRIPTIONS)).json()["items"]
    assert (own["state"], own["mother_name"]) == ("requested", "Ada")
    await house.client.put(f"{house.labour}/subscribers/{own['id']}/block")
    [own] = (await house.ask("alan", "GET", SUBSCRIPTIONS)).json()["items"]
    assert own["state"] == "removed"  # the view does not reveal that he is blocked

    left = await house.ask("grace", "PUT", f"/api/v1/subscriptions/{house.people['grace']}/leave")

    assert left.json()["state"] == "left"
    assert (await house.ask("grace", "GET", house.labour)).status_code == 404
    stolen = await house.ask("stella", "PUT", f"/api/v1/subscriptions/{house.people['paula']}/leave")
    assert_problem(stolen, 404, "not-subscribed")


async def test_a_request_with_a_number_that_is_on_the_list_is_answered_like_one_with_any_other_number(
    house: House, labour_client: AsyncClient
) -> None:
    token = (await labour_client.post(f"{house.labour}/invites", json={})).json()["token"]

    async def ask(who: str, phone: str) -> tuple[int, dict[str, Any]]:
        answer = await house.ask(who, "POST", SUBSCRIPTIONS, {"token": token, "name": "Eve", "phone": phone})
        [listed] = (await house.ask(who, "GET", SUBSCRIPTIONS)).json()["items"]
        assert answer.json() == listed
        return answer.status_code, {name: value for name, value in listed.items() if name != "id"}

    on_the_list, fresh = await ask("eve", "+12025550100"), await ask("ida", "+12025550177")

    assert on_the_list == fresh
    assert on_the_list[0] == 201
    people = (await labour_client.get(house.labour)).json()["subscribers"]
    [eve] = [one["id"] for one in people if one["phone"] == "+12025550100" and one["state"] == "requested"]
    told = await labour_client.put(f"{house.labour}/subscribers/{eve}/approve")
    assert_problem(told, 409, "already-subscribed")  # the mother is told


async def test_eight_people_with_one_invite_at_once_all_get_to_ask(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]

    async def ask(number: int) -> int:
        body = {"token": token, "name": f"Person {number}", "phone": f"+1212555010{number}"}
        for _ in range(20):
            answer = await labour_client.post(SUBSCRIPTIONS, json=body, headers=speaking_as(f"user-{number}"))
            if answer.status_code != 409 or answer.json()["type"].rpartition(":")[2] != "too-busy":
                break
        return answer.status_code

    assert await asyncio.gather(*(ask(number) for number in range(8))) == [201] * 8
    assert len((await labour_client.get(labour)).json()["subscribers"]) == 8


def spoiled(**claims: Any) -> str:
    now = datetime.now(UTC)
    good = {"sub": "ada", "aud": "fernlabour", "exp": now + timedelta(hours=1)}
    wanted = {key: value for key, value in {**good, **claims}.items() if value is not None}
    return jwt.encode(wanted, "local-secret-for-tokens-on-this-machine", algorithm="HS256")


@pytest.mark.parametrize(
    "token",
    [
        "nonsense",
        spoiled(exp=datetime.now(UTC) - timedelta(seconds=1)),
        spoiled(exp=None),
        spoiled(aud="another-service"),
        spoiled(sub=None),
        spoiled(sub=""),
        spoiled(sub="x" * 201),
        spoiled(sub="ada\n"),
        jwt.encode({"sub": "ada", "aud": "fernlabour"}, "", algorithm="none"),
        jwt.encode({"sub": "ada", "aud": "fernlabour"}, "another secret, which is as long as it should be"),
    ],
    ids=[
        "nonsense",
        "expired",
        "endless",
        "for others",
        "no subject",
        "empty",
        "too long",
        "two lines",
        "unsigned",
        "forged",
    ],
)
async def test_a_token_that_is_not_valid_is_refused(labour_client: AsyncClient, token: str) -> None:
    answer = await labour_client.get(LABOURS, headers={"Authorization": f"Bearer {token}"})

    assert_problem(answer, 401, "not-authorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("origin", ["https://fern.example", "https://elsewhere.example"])
async def test_only_pages_that_are_named_may_call_from_a_browser(labour_url: str, origin: str) -> None:
    async with api_process(labour_url, CORS_ORIGINS="https://fern.example") as client:
        answer = await client.get(LABOURS, headers={"Origin": origin})

    allowed = answer.headers.get("access-control-allow-origin")
    assert allowed == ("https://fern.example" if origin == "https://fern.example" else None)


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "elsewhere.example"}, 403),
        ({"Origin": "http://elsewhere.example"}, 403),
        ({"Origin": "https://fern.example"}, 201),
        ({"Host": "labour-api:8401"}, 201),
        ({}, 201),
    ],
    ids=["rebound name", "foreign page", "named page", "container", "program"],
)
async def test_in_local_mode_where_every_secret_is_known_a_web_page_cannot_use_them(
    labour_url: str, headers: dict[str, str], status: int
) -> None:
    async with api_process(labour_url, CORS_ORIGINS="https://fern.example") as client:
        answer = await client.post(LABOURS, json={"mother_name": "Ada"}, headers=headers)

    assert answer.status_code == status, answer.text


LIVE = {"LABOUR_DATABASE_URL": "postgresql+asyncpg://x", "PUBSUB_PROJECT_ID": "p"}


@pytest.mark.parametrize(
    ("more", "reason"),
    [
        ({}, "JWKS_URL is not set"),
        ({"JWKS_URL": "http://keys.example", "TOKEN_ISSUER": "i"}, "JWKS_URL is not encrypted"),
    ],
)
def test_outside_local_mode_there_must_be_an_identity_provider_at_an_encrypted_address(
    more: dict[str, str], reason: str
) -> None:
    with pytest.raises(SettingsError, match=reason):
        ApiSettings.load({**LIVE, **more})


async def test_with_an_identity_provider_its_keys_decide_and_local_tokens_do_not_count(labour_url: str) -> None:
    with key_server() as provider:
        signed = provider.token(sub="ada", aud="fernlabour")
        other = provider.token(sub="ada", aud="fernlabour", iss="https://elsewhere.example")
        async with api_process(labour_url, JWKS_URL=provider.url, TOKEN_ISSUER=provider.url) as client:
            good = await client.get(LABOURS, headers={"Authorization": f"Bearer {signed}"})
            foreign = await client.get(LABOURS, headers={"Authorization": f"Bearer {other}"})
            local = await client.get(LABOURS)

    assert good.status_code == 200
    assert_problem(foreign, 401, "not-authorized")
    assert_problem(local, 401, "not-authorized")


async def test_without_the_keys_of_the_identity_provider_the_answer_is_503_and_not_401(labour_url: str) -> None:
    with key_server() as provider:
        provider.answers = False
        signed = provider.token(sub="ada", aud="fernlabour")
        async with api_process(labour_url, JWKS_URL=provider.url, TOKEN_ISSUER=provider.url) as client:
            answer = await client.get(LABOURS, headers={"Authorization": f"Bearer {signed}"})

    assert_problem(answer, 503, "unavailable")


async def test_a_blocked_or_removed_person_is_off_the_roster_at_once(house: House) -> None:
    await house.client.put(f"{house.labour}/subscribers/{house.people['grace']}/block")
    await house.client.delete(f"{house.labour}/subscribers/{house.people['paula']}")

    begun = await house.client.put(f"{house.labour}/begin")

    assert begun.json()["roster_version"] == 4
    assert [one["state"] for one in begun.json()["subscribers"]] == ["blocked", "requested"]
