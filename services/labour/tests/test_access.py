"""Who may do what: every route with every kind of caller, and what each of them gets to see."""

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

from e2e.support.api import speaking_as
from e2e.support.http_server import served
from labour.app import build
from labour.settings import Settings
from messaging.errors import SettingsError
from tests.labour_parts import assert_problem, plan

ALAN = {"name": "Alan", "phone": "+12025550199"}


@dataclass
class House:
    """A labour of Ada's; Grace is approved, Paula is her birth partner, Alan has asked, and Stella is a stranger."""

    client: httpx.AsyncClient
    labour: str
    people: dict[str, str]

    async def ask(self, who: str | None, method: str, path: str, body: object = None) -> httpx.Response:
        headers = speaking_as(who) if who else {"Authorization": ""}
        return await self.client.request(method, path, json=body, headers=headers)


@pytest.fixture
async def house(labour_client: httpx.AsyncClient) -> House:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]
    people = {}
    for number, name in enumerate(("grace", "paula", "alan")):
        body = {"token": token, "name": name.title(), "phone": f"+1202555010{number}"}
        asked = await labour_client.post("/api/v1/subscriptions", json=body, headers=speaking_as(name))
        assert asked.status_code == 201, asked.text
        people[name] = asked.json()["id"]
    for name in ("grace", "paula"):
        await labour_client.put(f"{labour}/subscribers/{people[name]}/approve")
    await labour_client.put(f"{labour}/subscribers/{people['paula']}/role", json={"role": "birth-partner"})
    return House(labour_client, labour, people)


CALLERS = ("ada", "paula", "grace", "alan", "stella", None)
EVERYBODY, NOBODY = (200, 201, 204), (401,)
HERS = {"ada": EVERYBODY, "paula": (403,), "grace": (403,), "alan": (404,), "stella": (404,), None: NOBODY}
PARTNERS = {**HERS, "paula": EVERYBODY}
TOLD = {**PARTNERS, "grace": EVERYBODY}
ANYBODYS = {**dict.fromkeys(CALLERS, EVERYBODY), None: NOBODY}
SOME = uuid4()

# Every route under /api, with what each caller gets. `{…}` is filled in; a body that is fit for the route where one is needed.
ROUTES: dict[tuple[str, str], tuple[dict[str | None, tuple[int, ...]], object]] = {
    ("GET", "/api/v1/labours"): (ANYBODYS, None),
    ("POST", "/api/v1/labours"): ({**ANYBODYS, "ada": (409,)}, {"mother_name": "Me"}),
    ("GET", "/api/v1/labours/{labour_id}"): (TOLD, None),
    ("GET", "/api/v1/labours/{labour_id}/updates"): (TOLD, None),
    ("GET", "/api/v1/labours/{labour_id}/contractions"): (PARTNERS, None),
    ("GET", "/api/v1/labours/{labour_id}/advice"): (PARTNERS, None),
    ("GET", "/api/v1/labours/{labour_id}/told"): (HERS, None),
    ("GET", "/api/v1/labours/{labour_id}/invites"): (HERS, None),
    ("POST", "/api/v1/labours/{labour_id}/invites"): (HERS, {}),
    ("DELETE", "/api/v1/labours/{labour_id}/invites/{invite_id}"): ({**HERS, "ada": (404,)}, None),
    ("POST", "/api/v1/labours/{labour_id}/updates"): (HERS, {"kind": "status", "text": "Hello"}),
    ("DELETE", "/api/v1/labours/{labour_id}/updates/{update_id}"): ({**HERS, "ada": (404,)}, None),
    ("POST", "/api/v1/labours/{labour_id}/subscribers"): (HERS, ALAN),
    ("PUT", "/api/v1/labours/{labour_id}/subscribers/{subscriber_id}/approve"): ({**HERS, "ada": (404,)}, None),
    ("PUT", "/api/v1/labours/{labour_id}/subscribers/{subscriber_id}/block"): ({**HERS, "ada": (404,)}, None),
    ("PUT", "/api/v1/labours/{labour_id}/subscribers/{subscriber_id}/unblock"): ({**HERS, "ada": (404,)}, None),
    ("PUT", "/api/v1/labours/{labour_id}/subscribers/{subscriber_id}/role"): (
        {**HERS, "ada": (404,)},
        {"role": "birth-partner"},
    ),
    ("DELETE", "/api/v1/labours/{labour_id}/subscribers/{subscriber_id}"): ({**HERS, "ada": (404,)}, None),
    ("PUT", "/api/v1/labours/{labour_id}/begin"): (HERS, None),
    ("POST", "/api/v1/labours/{labour_id}/contractions"): (HERS, {}),
    ("PUT", "/api/v1/labours/{labour_id}/contractions/{contraction_id}/end"): (
        {**HERS, "ada": (404,)},
        {"intensity": 5},
    ),
    ("PATCH", "/api/v1/labours/{labour_id}/contractions/{contraction_id}"): ({**HERS, "ada": (404,)}, {"intensity": 5}),
    ("DELETE", "/api/v1/labours/{labour_id}/contractions/{contraction_id}"): ({**HERS, "ada": (404,)}, None),
    ("PUT", "/api/v1/labours/{labour_id}/pushing"): (HERS, None),
    ("PUT", "/api/v1/labours/{labour_id}/complete"): ({**HERS, "ada": (409,)}, None),  # the contraction above runs
    ("GET", "/api/v1/subscriptions"): (ANYBODYS, None),
    ("POST", "/api/v1/subscriptions"): (
        {**dict.fromkeys(CALLERS, (404,)), None: NOBODY},
        {"token": "x" * 43, **ALAN},
    ),
    ("PUT", "/api/v1/subscriptions/{subscriber_id}/leave"): ({**dict.fromkeys(CALLERS, (404,)), None: NOBODY}, None),
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
        filled = path.replace("/api/v1/labours/{labour_id}", house.labour)
        for name in ("invite_id", "update_id", "subscriber_id", "contraction_id"):
            filled = filled.replace(f"{{{name}}}", str(SOME))
        for who in reversed(CALLERS):  # the mother last: what she does changes what the others would get
            answer = await house.ask(who, method, filled, body)
            assert answer.status_code in expected[who], f"{who}: {method} {path} → {answer.status_code} {answer.text}"
            if answer.is_error:
                assert answer.headers["content-type"].startswith("application/problem+json")


async def test_somebody_who_is_told_sees_how_it_goes_and_nothing_of_anybody_else(house: House) -> None:
    for kind in ("private", "status"):
        await house.client.post(f"{house.labour}/updates", json={"kind": kind, "text": f"a {kind} word"})

    labour = await house.ask("grace", "GET", house.labour)
    updates = await house.ask("grace", "GET", f"{house.labour}/updates")

    assert set(labour.json()) == {"id", "mother_name", "phase", "begun_at", "completed_at", "version", "view"}
    assert [item["text"] for item in updates.json()["items"]] == ["a status word"]
    assert "+1202" not in labour.text + updates.text


async def test_from_invite_to_leaving_in_the_words_of_those_who_do_it(house: House) -> None:
    [own] = (await house.ask("alan", "GET", "/api/v1/subscriptions")).json()["items"]
    assert (own["state"], own["mother_name"]) == ("requested", "Ada")
    await house.client.put(f"{house.labour}/subscribers/{own['id']}/block")
    [own] = (await house.ask("alan", "GET", "/api/v1/subscriptions")).json()["items"]
    assert own["state"] == "removed"  # that he is blocked is nobody's business

    left = await house.ask("grace", "PUT", f"/api/v1/subscriptions/{house.people['grace']}/leave")

    assert left.json()["state"] == "left"
    assert (await house.ask("grace", "GET", house.labour)).status_code == 404
    stolen = await house.ask("stella", "PUT", f"/api/v1/subscriptions/{house.people['paula']}/leave")
    assert_problem(stolen, 404, "not-subscribed")


async def test_eight_people_with_one_invite_at_once_all_get_to_ask(labour_client: httpx.AsyncClient) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]

    async def ask(number: int) -> int:
        body = {"token": token, "name": f"Person {number}", "phone": f"+1212555010{number}"}
        for _ in range(20):
            answer = await labour_client.post("/api/v1/subscriptions", json=body, headers=speaking_as(f"user-{number}"))
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
    ids=["nonsense", "expired", "endless", "for others", "nobody's", "empty", "unsigned", "forged"],
)
async def test_a_token_that_is_not_good_is_refused(labour_client: httpx.AsyncClient, token: str) -> None:
    answer = await labour_client.get("/api/v1/labours", headers={"Authorization": f"Bearer {token}"})

    assert_problem(answer, 401, "not-authorized")
    assert answer.headers["www-authenticate"].startswith("Bearer")


@pytest.mark.parametrize("origin", ["https://fern.example", "https://elsewhere.example"])
async def test_only_pages_that_are_named_may_call_from_a_browser(labour_url: str, origin: str) -> None:
    variables = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "CORS_ORIGINS": "https://fern.example"}
    async with served(build(Settings.load(variables))) as url, httpx.AsyncClient(base_url=url) as client:
        answer = await client.get("/api/v1/labours", headers={**speaking_as("ada"), "Origin": origin})

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
        variables = {
            "FERN_MODE": "local",
            "LABOUR_DATABASE_URL": labour_url,
            "JWKS_URL": issuer,
            "TOKEN_ISSUER": issuer,
        }
        claims = {"sub": "ada", "aud": "fernlabour", "iss": issuer, "exp": datetime.now(UTC) + timedelta(hours=1)}
        signed = jwt.encode(claims, key, algorithm="RS256", headers={"kid": "one"})
        async with served(build(Settings.load(variables))) as url, httpx.AsyncClient(base_url=url) as client:
            good = await client.get("/api/v1/labours", headers={"Authorization": f"Bearer {signed}"})
            local = await client.get("/api/v1/labours", headers=speaking_as("ada"))
        provider.shutdown()

    assert good.status_code == 200
    assert_problem(local, 401, "not-authorized")


async def test_a_blocked_or_removed_person_is_off_the_roster_before_the_next_news(house: House) -> None:
    await house.client.put(f"{house.labour}/subscribers/{house.people['grace']}/block")
    await house.client.delete(f"{house.labour}/subscribers/{house.people['paula']}")

    begun = await house.client.put(f"{house.labour}/begin")

    assert begun.json()["roster_version"] == 4
    assert [one["state"] for one in begun.json()["subscribers"]] == ["blocked", "requested"]
