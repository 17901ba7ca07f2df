"""Authorisation: every route with every kind of caller, and what each of them may read. Authentication: tokens."""

import asyncio
import json
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any
from uuid import uuid4

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from httpx import AsyncClient

from e2e.support.api import speaking_as
from labour.settings import Settings
from messaging.errors import SettingsError
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
        return await self.client.request(method, path, json=body, headers=headers)


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


async def test_every_route_says_who_may_and_holds_to_it(house: House) -> None:
    schema = (await house.client.get("/schema/openapi.json")).json()
    declared = {
        (method.upper(), path)
        for path, item in schema["paths"].items()
        for method in item
        if path.startswith("/api/") and not path.endswith("/events")  # which never ends: see test_live
    }
    assert declared == set(ROUTES), "a route without a row, or a row without a route"

    for (method, path), (expected, body) in ROUTES.items():
        filled = path.replace(ONE, house.labour)
        for name in ("invite_id", "update_id", "subscriber_id", "contraction_id"):
            filled = filled.replace(f"{{{name}}}", str(SOME))
        for who in reversed(CALLERS):  # the mother last: her changes affect what the others get
            answer = await house.ask(who, method, filled, body)
            assert answer.status_code in expected[who], f"{who}: {method} {path} → {answer.status_code} {answer.text}"
            if answer.is_error:
                assert answer.headers["content-type"].startswith("application/problem+json")


async def test_a_subscriber_reads_the_course_of_the_labour_and_nothing_about_other_subscribers(house: House) -> None:
    for kind in ("private", "status"):
        await house.client.post(f"{house.labour}/updates", json={"kind": kind, "text": f"a {kind} word"})

    labour = await house.ask("grace", "GET", house.labour)
    updates = await house.ask("grace", "GET", f"{house.labour}/updates")

    assert set(labour.json()) == {"id", "mother_name", "phase", "begun_at", "completed_at", "version", "view"}
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
        jwt.encode({"sub": "ada", "aud": "fernlabour"}, "", algorithm="none"),
        jwt.encode({"sub": "ada", "aud": "fernlabour"}, "another secret, which is as long as it should be"),
    ],
    ids=["nonsense", "expired", "endless", "for others", "no subject", "empty", "unsigned", "forged"],
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


def test_outside_local_mode_there_must_be_an_identity_provider() -> None:
    with pytest.raises(SettingsError, match="JWKS_URL"):
        Settings.load(
            {"LABOUR_DATABASE_URL": "postgresql+asyncpg://x", "PUBSUB_PROJECT_ID": "p", "OPERATIONS_TOKEN": "t"}
        )


async def test_with_an_identity_provider_its_keys_decide_and_local_tokens_do_not_count(labour_url: str) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    public = {**json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key())), "kid": "one", "use": "sig"}

    class Keys(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.end_headers()
            self.wfile.write(json.dumps({"keys": [public]}).encode())

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Keys) as provider:
        Thread(target=provider.serve_forever, daemon=True).start()
        issuer = f"http://127.0.0.1:{provider.server_address[1]}"
        claims = {"sub": "ada", "aud": "fernlabour", "iss": issuer, "exp": datetime.now(UTC) + timedelta(hours=1)}
        signed = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
        async with api_process(labour_url, JWKS_URL=issuer, TOKEN_ISSUER=issuer) as client:
            good = await client.get(LABOURS, headers={"Authorization": f"Bearer {signed}"})
            local = await client.get(LABOURS)
        provider.shutdown()

    assert good.status_code == 200
    assert_problem(local, 401, "not-authorized")


async def test_a_blocked_or_removed_person_is_off_the_roster_at_once(house: House) -> None:
    await house.client.put(f"{house.labour}/subscribers/{house.people['grace']}/block")
    await house.client.delete(f"{house.labour}/subscribers/{house.people['paula']}")

    begun = await house.client.put(f"{house.labour}/begin")

    assert begun.json()["roster_version"] == 4
    assert [one["state"] for one in begun.json()["subscribers"]] == ["blocked", "requested"]
