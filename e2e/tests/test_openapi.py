"""The OpenAPI description and the API say the same: whatever is sent is answered as it says, and never with a 5xx."""

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

from e2e.support.world import World
from fern.settings import OPERATIONS_TOKEN
from fern.tokens import make_token

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance, response_schema_conformance]
EXAMPLES = 15  # for each operation


@pytest.fixture(scope="module")
def operations(world: World) -> list[Any]:
    schema = schemathesis.openapi.from_url(f"{world.settings.url('labour-api')}/schema/openapi.json")
    found: list[Any] = [result.ok() for result in cast("Any", schema.get_all_operations())]
    assert len(found) > 30
    return [one for one in found if not one.path.endswith("/events")]  # which never ends; it has tests of its own


def test_whatever_is_sent_is_answered_as_documented(world: World, operations: list[Any]) -> None:
    """Ids that exist are put in for those that are made up, so that it gets past the first "no such labour"."""
    labour = world.plan("Grace")
    mother = labour.mother["Authorization"]
    person = world.request(labour, "GET", "")["subscribers"][0]["id"]
    contraction = world.request(labour, "POST", "/contractions", {})["id"]
    known = {"labour_id": str(labour.id), "subscriber_id": person, "contraction_id": contraction}

    for operation in operations:

        @settings(
            max_examples=EXAMPLES,
            deadline=None,
            database=None,
            suppress_health_check=list(HealthCheck),
            derandomize=True,
        )
        @given(case=operation.as_strategy())
        def answers_as_documented(case: Any) -> None:
            operators = case.path.startswith("/operations")
            case.headers = {"Authorization": f"Bearer {OPERATIONS_TOKEN}" if operators else mother}
            case.path_parameters = {name: known.get(name, str(uuid4())) for name in case.path_parameters or {}}
            case.call_and_validate(checks=CHECKS, timeout=60)

        answers_as_documented()


def test_a_stranger_gets_no_5xx_either(world: World, operations: list[Any]) -> None:
    stranger = {"Authorization": f"Bearer {make_token('stella')}"}

    for operation in operations:

        @settings(
            max_examples=3, deadline=None, database=None, suppress_health_check=list(HealthCheck), derandomize=True
        )
        @given(case=operation.as_strategy())
        def answers_as_documented(case: Any) -> None:
            case.headers = stranger
            case.call_and_validate(checks=CHECKS, timeout=60)

        answers_as_documented()


def test_the_examples_in_the_description_work(world: World) -> None:
    schema = world.labour_api.get("/schema/openapi.json").json()
    mother = {"Authorization": f"Bearer {make_token(f'mother-{uuid4()}')}"}
    labours = "/api/v1/labours"

    planned = world.labour_api.post(labours, json=_example(schema, labours), headers=mother)
    assert planned.status_code == 201, planned.text
    for part in ("subscribers", "updates", "invites", "contractions"):
        body = _example(schema, f"{labours}/{{labour_id}}/{part}")
        answer = world.labour_api.post(f"{planned.headers['location']}/{part}", json=body, headers=mother)
        assert answer.status_code == 201, answer.text


def _example(schema: dict[str, Any], path: str) -> dict[str, Any]:
    """A body for POST, made of the examples that the description gives for what is required."""
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
