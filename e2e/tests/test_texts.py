"""No text with a control character or half of a surrogate pair gets in: 400, and the answer names where it is.

The cases come from the OpenAPI descriptions of both services, so a new field, parameter or route is tested as well.
"""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any, cast
from uuid import UUID, uuid4

import jwt
import pytest
from httpx import ASGITransport, AsyncClient, Response
from litestar import Litestar, Request
from litestar.testing import AsyncTestClient
from litestar.types import Receive, Scope, Send
from twilio.request_validator import RequestValidator

from e2e.support.api import OPERATOR, speaking_as
from fern.tokens import make_token
from labour import app as labour
from labour.settings import LOCAL_SECRET
from labour.settings import ApiSettings as LabourSettings
from notification import app as notification
from notification.settings import ApiSettings as NotificationSettings
from servicekit.http.request_checks import NO_HOST, check_head

Api = AsyncTestClient[Litestar]

NEVER = ["\x00", "a\x00b", "a\x07", "a\x1b[2J", "a\x7f", "a\x9f", "a\ud800", "\udc00b"]
IN_ONE_LINE = ["a\n", "a\nb", "a\tb", "a\r"]
LINES = {"notes"}  # the texts that may have several lines
# Pub/Sub repeats what is refused, so the consumer judges a pushed message: it dead-letters a bad one with its reason.
JUDGED_BY_THE_CONSUMER = {"/pubsub/push"}


@pytest.fixture
async def apis(labour_url: str, notification_url: str, bus_host: str) -> AsyncIterator[dict[str, Api]]:
    """Both listeners of both services. The operators' ones are named by their service and `-operators`."""
    local = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "NOTIFICATION_DATABASE_URL": notification_url}
    built = {
        "labour": labour.build(LabourSettings.load(local)),
        "notification": notification.build(NotificationSettings.load(local)),
    }
    found = dict[str, Api]()
    async with AsyncExitStack() as running:
        for service, both in built.items():
            public = AsyncTestClient(both.public, base_url="http://127.0.0.1")
            operators = AsyncTestClient(both.operators, base_url="http://127.0.0.1")
            found[service] = await running.enter_async_context(public)
            operators.blocking_portal = public.blocking_portal  # one event loop for both: they share connections
            found[f"{service}-operators"] = await running.enter_async_context(operators)
        yield found


@pytest.fixture
def labour_api(apis: dict[str, Api]) -> Api:
    return apis["labour"]


@pytest.fixture
def notification_api(apis: dict[str, Api]) -> Api:
    return apis["notification"]


def assert_refused(answer: Response, field: str) -> None:
    assert answer.status_code == 400, (
        f"{answer.request.method} {answer.request.url}: {answer.status_code} {answer.text}"
    )
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["type"] == "urn:fernlabour:problem:invalid-request"
    assert [one["field"] for one in problem["fields"]] == [field]
    assert problem["detail"].startswith(f"{field}: ")
    assert "regex" not in problem["detail"]


# What the descriptions say


def operations(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for path, item in schema["paths"].items():
        for method, operation in item.items():
            if method in ("get", "post", "put", "patch", "delete") and path not in JUDGED_BY_THE_CONSUMER:
                yield method, path, operation


def resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    """The definition of a type; of a type or null, that of the type."""
    if "$ref" in part:
        return resolved(schema, schema["components"]["schemas"][part["$ref"].rpartition("/")[2]])
    [wanted] = [one for one in part.get("oneOf", [part]) if one.get("type") != "null"]
    return resolved(schema, wanted) if "oneOf" in part else part


def body_of(schema: dict[str, Any], operation: dict[str, Any]) -> dict[str, Any] | None:
    if "requestBody" not in operation:
        return None
    return resolved(schema, operation["requestBody"]["content"]["application/json"]["schema"])


def example(schema: dict[str, Any], part: dict[str, Any]) -> Any:
    part = resolved(schema, part)
    if part["type"] == "object":
        return {name: example(schema, part["properties"][name]) for name in part.get("required", [])}
    if values := part.get("examples") or part.get("enum"):
        return next(iter(values.values()))["value"] if isinstance(values, dict) else values[0]
    return {"array": [], "integer": 1, "boolean": True, "string": "x" * part.get("minLength", 1)}[part["type"]]


def texts(schema: dict[str, Any], body: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """The fields of a body that take any text, and a text with which any other one is long enough for the field."""
    for name, field in body["properties"].items():
        field = resolved(schema, field)
        assert field["type"] != "object", f"{name} is an object: let the walk go into it"
        if field["type"] == "string" and "enum" not in field and "format" not in field:
            yield name, "x" * (field.get("minLength", 1) - 1)


# The walk


@pytest.mark.parametrize(
    ("service", "expected"), [("labour", 8), ("labour-operators", 6), ("notification-operators", 6)]
)
async def test_every_text_of_every_body_is_checked(apis: dict[str, Api], service: str, expected: int) -> None:
    api = apis[service]
    schema, tried = api.app.openapi_schema.to_schema(), 0

    for method, path, operation in operations(schema):
        body = body_of(schema, operation)
        if body is None:
            continue
        valid, headers = example(schema, body), headers_for(service)
        for name, shortest in texts(schema, body):
            tried += 1
            for text in NEVER + ([] if name in LINES else IN_ONE_LINE):
                content = json.dumps({**valid, name: shortest + text})
                assert_refused(await api.request(method, real(path), content=content, headers=headers), name)

    assert tried >= expected


@pytest.mark.parametrize(
    ("service", "expected"),
    [("labour", 25), ("labour-operators", 12), ("notification", 2), ("notification-operators", 12)],
)
async def test_every_parameter_and_stored_header_is_checked(apis: dict[str, Api], service: str, expected: int) -> None:
    api, tried = apis[service], 0

    for method, path, operation in operations(api.app.openapi_schema.to_schema()):
        headers = headers_for(service)
        for parameter in operation.get("parameters", []):
            name, tried = parameter["name"], tried + 1
            for bad in ("%00", f"{uuid4()}%00", f"{uuid4().hex[:-1]}%0a", "a%C2%85"):
                if parameter["in"] == "path":
                    answer = await api.request(method, real(path.replace(f"{{{name}}}", bad)), headers=headers)
                    assert_refused(answer, "path")
                else:
                    assert_refused(await api.request(method, f"{real(path)}?{name}={bad}", headers=headers), name)
        for key in (b"a\x00b", b"a\nb", b"a\x85b"):
            sent: list[tuple[bytes, bytes]] = [(b"Idempotency-Key", key)]
            sent += [(name.encode(), value.encode()) for name, value in headers.items()]
            answer = await api.request(method, real(path), headers=sent)
            assert_refused(answer, "Idempotency-Key")

    assert tried >= expected


DEEP = b"[" * 45_000 + b"]" * 45_000
HOSTILE = {
    "nested": DEEP,
    "nested, not closed": b"[" * 90_000,
    "nested objects": b'{"a":' * 15_000 + b"1" + b"}" * 15_000,
    "a number of 5,000 digits": b"9" * 5_000,
    "a number without end": b"1e999",
    "not a number": b"NaN",
    "nothing": b"",
}
TIMES = ["0001-01-01T00:00:00+14:00", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00", "9999-12-31T23:59:59Z"]


@pytest.mark.parametrize(
    ("service", "expected"), [("labour", 60), ("labour-operators", 30), ("notification-operators", 30)]
)
async def test_no_body_causes_an_error_of_ours(apis: dict[str, Api], service: str, expected: int) -> None:
    """As the whole body, and in place of each of its fields. The labour exists, so that the request reaches its command."""
    api, tried = apis[service], 0
    schema = api.app.openapi_schema.to_schema()

    for method, path, operation in operations(schema):
        body = body_of(schema, operation)
        if body is None:
            continue
        known, headers = await a_labour(api, service)
        valid = {name: json.dumps(value).encode() for name, value in example(schema, body).items()}
        bodies = {**HOSTILE}
        for name, field in body["properties"].items():
            strange = {**HOSTILE, "an empty object": b"{}", "null": b"null"}
            if (
                resolved(schema, field).get("format") == "date-time"
            ):  # first: null starts a contraction, and one runs at a time
                strange = {time: json.dumps(time).encode() for time in TIMES} | strange
            for what, value in strange.items():
                fields = {**valid, name: value}
                pairs = (json.dumps(one).encode() + b":" + content for one, content in fields.items())
                bodies[f"{name}: {what}"] = b"{" + b",".join(pairs) + b"}"
        for what, content in bodies.items():
            answer = await api.request(method, real(path, known), content=content, headers=headers)
            assert answer.status_code < 500, f"{method} {path}, {what}: {answer.status_code} {answer.text}"
            tried += 1

    assert tried >= expected


MULTIPART = "multipart/form-data; boundary=x"
PART = b'--x\r\nContent-Disposition: form-data; name="From"%s\r\n\r\n%s\r\n--x--\r\n'
URL_ENCODED = "application/x-www-form-urlencoded"
HOSTILE_FORMS = {
    "a byte that is not UTF-8": (MULTIPART, PART % (b"", b"\xff")),
    "an unknown encoding": (f"{MULTIPART}; charset=foo", PART % (b"\r\nContent-Type: text/plain; charset=foo", b"1")),
    "JSON that is none": (MULTIPART, PART % (b"\r\nContent-Type: application/json", DEEP)),
    "no boundary": ("multipart/form-data", PART % (b"", b"1")),
    "cut off": (MULTIPART, PART[:30]),
    "bytes that are not UTF-8": (URL_ENCODED, b"From=%ff&\xff=\xfe"),
    "half of a pair": (URL_ENCODED, b"From=%ED%A0%80"),
    "9,000 fields": (URL_ENCODED, b"&".join(b"a%d=1" % number for number in range(9_000))),
    "no form": ("application/json", b"[1]"),
    "no type": ("", b"From=1"),
}


@pytest.mark.parametrize("content", HOSTILE_FORMS.values(), ids=HOSTILE_FORMS.keys())
async def test_no_form_causes_an_error_of_ours(notification_api: Api, content: tuple[str, bytes]) -> None:
    kind, body = content
    for path in ("inbound", f"status?nid={uuid4()}"):
        answer = await notification_api.post(f"/webhooks/twilio/{path}", content=body, headers={"Content-Type": kind})
        assert answer.status_code == 403, answer.text


@pytest.mark.parametrize("service", ["labour", "labour-operators", "notification", "notification-operators"])
async def test_no_host_causes_an_error_of_ours(apis: dict[str, Api], service: str) -> None:
    """Neither with a key, whose request is identified by its path, nor without parameters, where the error names the path."""
    api = apis[service]
    for method, path, _ in operations(api.app.openapi_schema.to_schema()):
        headers = {**headers_for(service), "Idempotency-Key": "a-key", "Host": "localhost:99999"}
        answer = await api.request(method, real(path), headers=headers)
        assert (answer.status_code, answer.json()["detail"]) == (400, NO_HOST), f"{method} {path}: {answer.text}"


@pytest.mark.parametrize(
    ("host", "status"),
    [(host, 200) for host in ("", ":", "fern.example", "fern.example:", "FERN.example:8401", "[::1]:80", "10.0.0.7")]
    + [(host, 400) for host in ("a:b", "a:65536", "a:-1", "a:1:2", "[::1", "[", "a b", "a/b", "a?b", "a@b", "\xe9")],
)
async def test_a_host_header_is_a_name_with_a_port(host: str, status: int) -> None:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        path = Request[Any, Any, Any](scope).url.path
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": path.encode(), "more_body": False})

    async with AsyncClient(
        transport=ASGITransport(cast("Any", check_head(application))), base_url="http://fern:81"
    ) as client:
        answer = await client.get("/health", headers=[(b"Host", host.encode("latin-1"))])

    assert answer.status_code == status


NUMBERS_AND_TIMES = ["", "-1", "0", "1e9", "9" * 30, "NaN", "%2B5", "%D9%A5", "x" * 3_000, *TIMES]


@pytest.mark.parametrize("service", ["labour", "labour-operators", "notification", "notification-operators"])
async def test_no_parameter_causes_an_error_of_ours(apis: dict[str, Api], service: str) -> None:
    api = apis[service]

    for method, path, operation in operations(api.app.openapi_schema.to_schema()):
        known, headers = await a_labour(api, service)
        for parameter in operation.get("parameters", []):
            if parameter["in"] != "query":
                continue
            for value in NUMBERS_AND_TIMES:
                url = f"{real(path, known)}?{parameter['name']}={value.replace('+', '%2B')}"
                answer = await api.request(method, url, headers=headers)
                assert answer.status_code < 500, f"{method} {url}: {answer.status_code} {answer.text}"


async def a_labour(api: Api, service: str) -> tuple[str, dict[str, str]]:
    """The id of a new labour and the headers of its mother; for operators, of nothing, and theirs."""
    if service != "labour":
        return str(uuid4()), OPERATOR
    mother = speaking_as(f"mother-{uuid4()}")
    planned = await api.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=mother)
    return str(planned.json()["id"]), mother


def real(path: str, labour_id: str = "") -> str:
    """The path with an id in place of each parameter."""
    if labour_id:
        path = path.replace("{labour_id}", labour_id)
    while "{" in path:
        before, _, rest = path.partition("{")
        path = f"{before}{uuid4()}{rest.partition('}')[2]}"
    return path


def headers_for(service: str) -> dict[str, str]:
    return OPERATOR if service.endswith("-operators") else speaking_as("ada")


# What is no field of a description


async def test_a_text_of_several_lines_keeps_its_line_breaks_and_tabs(labour_api: Api) -> None:
    mother, notes = speaking_as("ada"), "A girl.\r\n\t3,400 g \N{GIRL}\n"
    planned = await labour_api.post("/api/v1/labours", json={"mother_name": "Zo\u00eb"}, headers=mother)

    complete = await labour_api.put(f"{planned.headers['location']}/complete", json={"notes": notes}, headers=mother)

    assert (complete.status_code, complete.json()["notes"]) == (200, notes)


@pytest.mark.parametrize("subject", ["a\x00b", "a\nb", "\x85", "a\ud800", "x" * 201, ""])
async def test_a_token_with_a_subject_that_cannot_be_stored_identifies_no_caller(labour_api: Api, subject: str) -> None:
    claims = {**jwt.decode(make_token("ada"), options={"verify_signature": False}), "sub": subject}
    claims["exp"] = datetime.now(UTC) + timedelta(hours=1)
    headers = {"Authorization": f"Bearer {jwt.encode(claims, LOCAL_SECRET, algorithm='HS256')}"}

    for answer in (
        await labour_api.get("/api/v1/labours", headers=headers),
        await labour_api.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=headers),
    ):
        assert (answer.status_code, answer.json()["type"]) == (401, "urn:fernlabour:problem:not-authorized")
        assert "(sub)" in answer.json()["detail"]


@pytest.mark.parametrize("body", [b'{"mother_name": "\xed\xa0\x80"}', b'{"mother_name": "\xff"}', b"[" * 90_000])
async def test_a_body_that_cannot_be_decoded_is_an_invalid_request(labour_api: Api, body: bytes) -> None:
    answer = await labour_api.post("/api/v1/labours", content=body, headers=speaking_as("ada"))

    assert (answer.status_code, answer.json()["type"]) == (400, "urn:fernlabour:problem:invalid-request")


@pytest.mark.parametrize(
    ("path", "form", "status"),
    [
        ("inbound", {"From": "+1202\x00", "Body": "STOP"}, 400),
        ("inbound", {"From": "+12025550123", "Body": "What\x00\x07?"}, 200),  # not stored
        (f"status?nid={UUID(int=7)}", {"MessageSid": "SM\x00", "MessageStatus": "sent"}, 400),
        (f"status?nid={UUID(int=7)}", {"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": "9" * 30}, 204),
        (
            f"status?nid={UUID(int=7)}",
            {"MessageSid": "SM1", "MessageStatus": "failed", "ErrorCode": "\N{SUPERSCRIPT TWO}"},
            204,
        ),
        (f"status?nid={UUID(int=7)}&attempt={'9' * 30}", {"MessageSid": "SM1", "MessageStatus": "sent"}, 400),
    ],
)
async def test_a_signed_form_is_checked_where_it_is_stored(
    notification_api: Api, path: str, form: dict[str, str], status: int
) -> None:
    settings = NotificationSettings.load({"FERN_MODE": "local", "NOTIFICATION_DATABASE_URL": "postgresql+asyncpg://n"})
    url = f"/webhooks/twilio/{path}"
    signature = RequestValidator(settings.twilio_auth_token).compute_signature(settings.public_url + url, form)

    answer = await notification_api.post(url, data=form, headers={"X-Twilio-Signature": signature})

    assert answer.status_code == status, answer.text
