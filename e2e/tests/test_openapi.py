"""The API does what its OpenAPI description says: every request gets a documented answer, and none a 5xx."""

from collections.abc import Callable
from typing import Any, cast
from uuid import uuid4

import pytest
import schemathesis
from hypothesis import HealthCheck, given, settings
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

from e2e.support.api import OPERATOR, speaking_as
from e2e.support.world import World

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES, EXAMPLES_OF_A_STRANGER = 15, 3  # for each operation


@pytest.fixture(scope="module")
def operations(world: World) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{world.settings.url('labour-api')}/schema/openapi.json")
    found: list[Any] = [result.ok() for result in cast("Any", schema.get_all_operations())]
    assert len(found) > 30
    return [
        one for one in found if not one.path.endswith("/events")
    ]  # a stream that never ends; it has tests of its own


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
