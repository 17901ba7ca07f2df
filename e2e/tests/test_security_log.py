"""The security log has one line for each refusal and for each change of an operator, and nothing secret or personal in any.

The walk takes its routes from the documents of both listeners of both services, so a new route is walked as well. Callers who may
see a labour in part are in services/labour/tests/test_access.py, which checks the same for each of them.
"""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from typing import Any, cast

import pytest
from httpx import AsyncClient, Response
from litestar import Litestar
from litestar.types import Receive, Scope, Send
from structlog.testing import capture_logs

from e2e.support.api import OPERATOR, PATIENT, READER, async_client, speaking_as
from e2e.support.http_server import served
from e2e.support.security_events import expected_events, security_events
from e2e.support.waiting import eventually
from labour import app as labour
from labour.settings import ApiSettings as LabourSettings
from notification import app as notification
from notification.settings import ApiSettings as NotificationSettings
from servicekit.http import security_log
from servicekit.http.security_log import LINES_PER_SECOND, Lines, SecurityLog

ID = "01a1eede-e444-7244-b9ce-7b25fd32333d"  # in every path
MARK = "zanzibar"  # in every query and body
PHONE = "+12025550123"
CALLERS = {
    "no token": {},
    "unknown": {"Authorization": f"Bearer {MARK}.{MARK}.{MARK}"},
    "ada": speaking_as("ada"),
    "reader": READER,
    "writer": OPERATOR,
}
CHANGES = {  # bodies with which a change of an operator is really made
    "/operations/outbox/replay": {"type": MARK},
    "/operations/outbox/parked/retry": {"type": MARK},
    "/operations/outbox/parked/discard": {"type": MARK},
    "/operations/claims/discard": {"consumer": "labour", "event_ids": []},
}
PUSH = {"message": {"messageId": MARK, "data": "", "attributes": {}}, "subscription": MARK}


@dataclass
class Listener:
    app: Litestar
    client: AsyncClient

    def routes(self) -> list[tuple[str, str]]:
        paths = self.app.openapi_schema.to_schema()["paths"]
        found = [(method.upper(), path) for path, item in paths.items() for method in item if method != "parameters"]
        return [one for one in found if not one[1].endswith("/events")]  # which never ends

    async def ask(self, who: str, method: str, path: str) -> Response:
        body = PUSH if path == "/pubsub/push" else CHANGES.get(path, {"mother_name": MARK, "phone": PHONE})
        filled = path.replace("{labour_id}", ID)
        while "{" in filled:
            filled = filled.replace(filled[filled.index("{") : filled.index("}") + 1], ID)
        query = {"note": MARK, "phone": PHONE}
        answer = await self.client.request(method, filled, json=body, params=query, headers=CALLERS[who])
        documented = self.app.openapi_schema.to_schema()["paths"].get(path, {}).get(method.lower())
        assert documented is None or str(answer.status_code) in documented["responses"], (
            f"{method} {path}: {answer.text}"
        )
        return answer


@pytest.fixture
async def listeners(labour_url: str, notification_url: str, bus_host: str) -> AsyncIterator[dict[str, Listener]]:
    local = {
        "FERN_MODE": "local",
        "LABOUR_DATABASE_URL": labour_url,
        "NOTIFICATION_DATABASE_URL": notification_url,
        "PUSH_AUDIENCE": "fern",
        "PUSH_SERVICE_ACCOUNT": "push@fern.example",
        "SECURITY_LOG_KEY": "a-key-for-this-test",
        **PATIENT,
    }
    built = {
        "labour": labour.build(LabourSettings.load(local)),
        "notification": notification.build(NotificationSettings.load(local)),
    }
    apps = {f"{name}-{part}": app for name, apis in built.items() for part, app in apis._asdict().items()}
    async with AsyncExitStack() as running:
        found = {}
        for name, app in apps.items():
            client = async_client(await running.enter_async_context(served(app)))
            found[name] = Listener(app, await running.enter_async_context(client))
        yield found


@pytest.fixture(autouse=True)
def every_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "LINES_PER_SECOND", 1_000_000)


@pytest.mark.parametrize(
    ("name", "least"),
    [("labour-public", 30), ("labour-operators", 13), ("notification-public", 5), ("notification-operators", 13)],
)
async def test_every_route_with_every_caller_logs_its_refusals_and_changes_and_nothing_else(
    listeners: dict[str, Listener], name: str, least: int
) -> None:
    listener, statuses = listeners[name], set[int]()
    routes = [*listener.routes(), ("GET", "/nowhere/{id}"), ("POST", "/nowhere/{id}")]
    assert len(routes) >= least

    for method, path in routes:
        for who in CALLERS:
            with capture_logs() as logs:
                answer = await listener.ask(who, method, path)
            operator = "local" if name.endswith("-operators") and who in ("reader", "writer") else None

            seen = security_events(logs)

            route = "unknown" if path.startswith("/nowhere") else path
            assert seen == expected_events(answer, method, route, operator), f"{who}: {method} {path}"
            statuses.add(answer.status_code)
            printed = json.dumps([one for one in logs if one["event"] == "security event"], default=str)
            for secret in (MARK, PHONE.removeprefix("+"), "Bearer ey", "local-operator", "127.0.0.1"):
                assert secret not in printed, f"{who}: {method} {path}: {printed}"
            assert ID not in printed or seen[0]["kind"] == "operator-change"

    assert 500 not in statuses


async def test_the_public_listeners_do_not_have_the_operators_routes_and_do_not_document_them(
    listeners: dict[str, Listener],
) -> None:
    for service in ("labour", "notification"):
        public, operators = listeners[f"{service}-public"], listeners[f"{service}-operators"]
        documented = {path for _, path in public.routes()}

        for method, path in operators.routes():
            assert path not in documented
            assert (await public.ask("writer", method, path)).status_code == 404, path
        document = (await operators.client.get("/schema/openapi.json", headers=READER)).json()
        assert set(document["paths"]) == {path for _, path in operators.routes()}


async def test_a_change_names_the_operator_the_route_the_ids_and_the_result(listeners: dict[str, Listener]) -> None:
    path = f"/operations/notifications/{ID}/resolve"
    with capture_logs() as logs:
        client = listeners["notification-operators"].client
        await client.post(path, json={"decision": "give-up"}, headers=OPERATOR)

    [event] = security_events(logs)
    assert event == {
        "kind": "operator-change",
        "method": "POST",
        "route": "/operations/notifications/{notification_id}/resolve",
        "status": 404,
        "operator": "local",
        "ids": {"notification_id": ID},
        "log_level": "warning",
    }


async def test_a_change_that_was_cut_off_is_logged_without_a_result() -> None:
    async def cut_off(scope: Scope, receive: Receive, send: Send) -> None:
        scope["state"]["operator"] = "grace"
        raise asyncio.CancelledError

    scope: Any = {"type": "http", "method": "POST", "path": "/nowhere", "state": {}}
    with capture_logs() as logs, pytest.raises(asyncio.CancelledError):
        await SecurityLog(Litestar([]), cut_off)(scope, cast("Any", None), cast("Any", None))

    [event] = security_events(logs)
    assert (event["kind"], event["operator"], event["status"]) == ("operator-change", "grace", None)


@pytest.mark.parametrize(
    ("method", "path", "kind", "reason"),
    [
        ("POST", "/webhooks/twilio/inbound", "bad-signature", "bad-signature"),
        ("POST", "/webhooks/twilio/status?nid=" + ID, "bad-signature", "bad-signature"),
        ("POST", "/pubsub/push", "push-refused", "not-authorized"),
    ],
)
async def test_an_unsigned_webhook_and_an_unsigned_push_have_kinds_of_their_own(
    listeners: dict[str, Listener], method: str, path: str, kind: str, reason: str
) -> None:
    client = listeners["notification-public"].client
    with capture_logs() as logs:
        if "push" in path:
            await client.request(method, path, json=PUSH)
        else:
            await client.request(method, path, data={"From": PHONE, "Body": "STOP", "MessageSid": "SM1"})

    [event] = security_events(logs)
    assert (event["kind"], event["reason"], event["route"]) == (kind, reason, path.partition("?")[0])


async def test_a_caller_is_a_hash_that_only_the_key_can_reproduce(labour_url: str) -> None:
    async def refused(user: str, key: str) -> dict[str, Any]:
        variables = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "SECURITY_LOG_KEY": key}
        app = labour.build(LabourSettings.load({**variables, "RATE_LIMIT_PER_MINUTE": "1", **PATIENT})).public
        async with served(app) as url, async_client(url, speaking_as(user)) as client:
            with capture_logs() as logs:
                for _ in range(2):
                    answer = await client.put(f"/api/v1/labours/{ID}/begin")
        assert answer.status_code == 429
        [event] = security_events(logs)
        assert event["kind"] == "rate-limited"
        assert user not in str(event)
        return event

    ada, again, grace, other = [
        await refused(*one) for one in (("ada", "k"), ("ada", "k"), ("grace", "k"), ("ada", "l"))
    ]

    assert ada["caller"] == again["caller"]
    assert len({one["caller"] for one in (ada, grace, other)}) == 3


async def test_a_flood_of_refusals_is_a_few_lines_and_a_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_log, "LINES_PER_SECOND", LINES_PER_SECOND)
    left_out = list[tuple[str, int]]()
    lines = Lines(lambda kind, count: left_out.append((kind, count)))

    logged = [kind for _ in range(500) for kind in ("authentication-failed", "rate-limited") if lines.may_log(kind)]

    assert logged == ["authentication-failed", "rate-limited"] * LINES_PER_SECOND
    assert not left_out

    async def reported() -> list[tuple[str, int]]:
        return sorted(left_out)

    rest = 500 - LINES_PER_SECOND
    await eventually(reported, lambda seen: len(seen) == 2, what="the second is over")
    assert sorted(left_out) == [("authentication-failed", rest), ("rate-limited", rest)]
    assert lines.may_log("rate-limited")  # a new second
