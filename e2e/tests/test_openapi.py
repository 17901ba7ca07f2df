"""The API does what its OpenAPI description says: every request gets a documented answer, and none a 5xx."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, cast
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from playwright.sync_api import Browser, Page
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from e2e.support.api import OPERATOR, speaking_as
from e2e.support.console_screen import TIMEOUT
from e2e.support.world import World

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES, EXAMPLES_OF_A_STRANGER = 15, 3  # for each operation


@pytest.fixture(scope="module")
def operations(world: World) -> list[Any]:
    """Of both listeners of both services, but each route that several of them have only once."""
    found = {
        (operation.method, operation.path): operation
        for name in ("notification-operators", "labour-operators", "notification-api", "labour-api")
        for operation in (one.ok() for one in cast("Any", _schema(world.settings.url(name)).get_all_operations()))
    }
    assert len(found) > 40
    # Without the stream, which never ends. It has tests of its own.
    return [one for (_, path), one in found.items() if not path.endswith("/events")]


def _schema(url: str) -> Any:
    return schemathesis.openapi.from_url(f"{url}/schema/openapi.json", headers=OPERATOR)


def check(operations: list[Any], examples: int, prepare: Callable[[Any], None]) -> None:
    """Send generated requests to each operation, after `prepare` has set their headers and ids."""
    for operation in operations:

        @settings(max_examples=examples, database=None, suppress_health_check=list(HealthCheck))
        @given(case=operation.as_strategy())
        def is_answered_as_documented(case: Any) -> None:
            prepare(case)
            case.call_and_validate(checks=CHECKS, timeout=60)

        is_answered_as_documented()


def test_every_request_is_answered_as_documented(world: World, operations: list[Any]) -> None:
    """Generated ids are replaced by existing ones, so that the requests get past "no such labour"."""
    labour = world.plan("Grace")
    person = world.request(labour, "GET", "")["subscribers"][0]["id"]
    contraction = world.request(labour, "POST", "/contractions", {})["id"]
    known = {"labour_id": str(labour.id), "subscriber_id": person, "contraction_id": contraction}

    def prepare(case: Any) -> None:
        case.headers = OPERATOR if case.path.startswith("/operations") else labour.mother
        case.path_parameters = {name: known.get(name, str(uuid4())) for name in case.path_parameters or {}}

    check(operations, EXAMPLES, prepare)


def test_the_requests_of_a_stranger_are_answered_as_documented_as_well(operations: list[Any]) -> None:
    def prepare(case: Any) -> None:
        case.headers = speaking_as("stella")

    check(operations, EXAMPLES_OF_A_STRANGER, prepare)


# What no generator thinks of: characters that PostgreSQL cannot store, bodies deeper than any parser's stack, and no JSON at all.
HOSTILE = {
    "NUL": b'{"mother_name": "a\\u0000b", "name": "a\\u0000b", "phone": "\\u0000", "kind": "status", "text": "\\u0000"}',
    "half of a pair": b'{"mother_name": "\\ud800", "name": "\\ud800", "phone": "\\ud800", "kind": "private", "text": "\\ud800"}',
    "brackets": b"[" * 50_000,
    "braces": b'{"a":' * 15_000,
    "not JSON": b"\xff\xfe",
    "a number of 5,000 digits": b'{"intensity": ' + b"9" * 5_000 + b"}",
}


@pytest.mark.parametrize("body", HOSTILE.values(), ids=HOSTILE.keys())
def test_a_hostile_body_is_answered_as_documented(world: World, operations: list[Any], body: bytes) -> None:
    labour = world.plan("Grace")
    with_body = [one for one in operations if "application/json" in one.get_request_payload_content_types()]

    assert len(with_body) > 5
    for operation in with_body:
        headers = OPERATOR if operation.path.startswith("/operations") else labour.mother
        ids = {parameter.name: str(labour.id) for parameter in operation.path_parameters}
        case = operation.Case(path_parameters=ids, media_type="application/json")
        sent = {**headers, "Content-Type": "application/json"}
        answer = case.call(headers=sent, data=body, timeout=60)
        assert 400 <= answer.status_code < 500, (operation.path, answer.status_code)
        case.validate_response(answer, checks=CHECKS)


def test_the_examples_in_the_description_work(world: World) -> None:
    schema = world.labour_api.get("/schema/openapi.json").json()
    mother = speaking_as(f"mother-{uuid4()}")
    labours = "/api/v1/labours"

    planned = world.labour_api.post(labours, json=_example(schema, labours), headers=mother)
    assert planned.status_code == 201, planned.text
    for part in ("subscribers", "updates", "invites", "contractions"):
        body = _example(schema, f"{labours}/{{labour_id}}/{part}")
        answer = world.labour_api.post(f"{planned.headers['location']}/{part}", json=body, headers=mother)
        assert answer.status_code == 201, answer.text


@pytest.mark.parametrize(
    ("api", "operation", "path"),
    [
        ("labour-api", "list_labours", "/api/v1/labours"),
        ("notification-api", "check_readiness", "/health/ready"),
    ],
)
def test_the_page_of_an_api_needs_no_other_host_and_sends_requests_with_its_own_token(
    world: World, browser: Browser, api: str, operation: str, path: str
) -> None:
    url, errors = world.settings.url(api), list[str]()
    with open_page(browser, errors) as page:
        requested = set[str]()
        page.on("request", lambda request: requested.add("/".join(request.url.split("/")[:3])))
        page.goto(f"{url}/schema")
        row = page.locator(f"[id$='-{operation}']")
        row.locator(".opblock-summary-control").click()
        with page.expect_response(lambda answer: answer.url.partition("?")[0] == url + path) as answer:
            row.get_by_role("button", name="Execute").click()

        assert answer.value.status == 200
        assert requested == {url}
    assert errors == []


@contextmanager
def open_page(browser: Browser, errors: list[str]) -> Iterator[Page]:
    """Collects what the page reports as an error, also what its content security policy refuses."""
    context = browser.new_context(viewport={"width": 1280, "height": 1600})
    context.set_default_timeout(TIMEOUT)
    page = context.new_page()
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.on("console", lambda message: errors.append(message.text) if message.type == "error" else None)
    yield page
    context.close()


def _example(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """A body for POST, from the examples that the description gives for the required fields."""
    body = _resolved(schema, schema["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])
    fields = {name: _resolved(schema, field) for name, field in body["properties"].items()}
    return {name: _first(fields[name]) for name in body.get("required", [])}


def _resolved(schema: dict[str, Any], part: dict[str, Any]) -> dict[str, Any]:
    if "$ref" not in part:
        return part
    return dict(schema["components"]["schemas"][part["$ref"].rpartition("/")[2]])


def _first(field: dict[str, Any]) -> Any:
    values = field.get("examples") or field.get("enum")
    assert values, f"no example for {field}"
    return next(iter(values.values()))["value"] if isinstance(values, dict) else values[0]
