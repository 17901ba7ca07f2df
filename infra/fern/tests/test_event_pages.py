"""What is generated from the events (schemas, pages, the AsyncAPI document), and how they may change after a release."""

import copy
import json
import re
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import jsonschema_rs
import pytest
from click.testing import CliRunner

from contracts.compatibility import refusals
from contracts.events import Event, LabourCompleted
from contracts.registry import EVENTS, decode, json_schema
from e2e.support import previous_release
from fern.commands import contracts
from fern.errors import ContractBroken
from fern.event_pages import example
from fern.topology import Declared
from messaging.envelope import attributes

Schema = dict[str, Any]


def test_every_schema_and_page_is_as_the_command_writes_it() -> None:
    outdated = [path.name for path, text in contracts.generated().items() if path.read_text() != text]

    assert outdated == [], "run `fern contracts write`"
    assert contracts.pages_of_no_event() == []


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.type)
def test_the_example_of_a_page_is_an_event_that_consumers_can_decode(event: type[Event]) -> None:
    data = json.dumps(example(event)).encode()

    assert isinstance(decode(event.type, event.version, data), event)


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: event.type)
def test_every_event_says_what_has_happened(event: type[Event]) -> None:
    assert vars(event).get("__doc__"), f"{event.__name__} needs a docstring: it is the first sentence of its page"


def describe_otherwise(schema: Schema) -> None:
    schema["description"] = schema["properties"]["labour_id"]["description"] = "other words"


def add_an_optional_field(schema: Schema) -> None:
    schema["properties"]["weight"] = {"type": "integer"}


def add_a_required_field(schema: Schema) -> None:
    add_an_optional_field(schema)
    schema["required"].append("weight")


def drop_a_field(schema: Schema) -> None:
    del schema["properties"]["mother_name"]
    schema["required"].remove("mother_name")


def require_no_more(schema: Schema) -> None:
    schema["required"].remove("mother_name")


def change_a_type(schema: Schema) -> None:
    schema["properties"]["roster_version"] = {"type": "string"}


def raise_a_minimum(schema: Schema) -> None:
    schema["properties"]["roster_version"]["minimum"] = 7


def allow_nothing_else(schema: Schema) -> None:
    schema["additionalProperties"] = False


@pytest.mark.parametrize(
    ("change", "refused"),
    [
        (describe_otherwise, []),
        (add_an_optional_field, []),
        (add_a_required_field, ["weight was added and is required"]),
        (drop_a_field, ["mother_name was dropped"]),
        (require_no_more, ["mother_name is not required any more"]),
        (change_a_type, ["roster_version has another type"]),
        (raise_a_minimum, ["roster_version has other limits"]),
        (allow_nothing_else, ["additionalProperties of the event changed"]),
    ],
)
def test_a_released_schema_changes_only_by_descriptions_and_optional_fields(
    change: Callable[[Schema], None], refused: list[str]
) -> None:
    released = json_schema(LabourCompleted)
    changed = copy.deepcopy(released)
    change(changed)

    assert refusals(released, changed) == refused


def test_a_field_that_was_optional_cannot_become_required() -> None:
    released = json_schema(LabourCompleted)
    released["required"].remove("mother_name")

    assert refusals(released, json_schema(LabourCompleted)) == ["mother_name is required now"]


def test_a_field_that_may_be_null_has_another_type_and_not_other_limits() -> None:
    released, changed = json_schema(LabourCompleted), json_schema(LabourCompleted)
    changed["properties"]["mother_name"] = {"anyOf": [{"type": "string"}, {"type": "null"}]}

    assert refusals(released, changed) == ["mother_name has another type"]


def test_every_event_is_what_was_released_of_it() -> None:
    contracts.check_released()


def test_the_released_schemas_are_those_of_the_release_before() -> None:
    """Its processes run beside those of today (infra/previous-release.toml), so its events are the ones that may not change."""
    released = {path.name: path.read_text() for path in contracts.RELEASED.glob("*.json")}

    assert released == previous_release.files("shared/contracts/schemas"), "run `fern contracts release` at that commit"


@pytest.fixture
def released(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of released schemas for this test; nothing is written outside of it."""
    monkeypatch.setattr(contracts, "RELEASED", tmp_path)
    return tmp_path


def test_an_event_that_contradicts_its_released_schema_is_refused_by_name_although_schema_and_struct_agree(
    released: Path,
) -> None:
    before = json_schema(LabourCompleted)
    before["properties"]["weight"] = {"type": "integer"}
    (released / "labour.completed.v1.json").write_text(json.dumps(before))

    for command in ("write", "release"):
        done = CliRunner().invoke(contracts.contracts, [command])
        assert done.exit_code == ContractBroken.exit_code
        assert "LabourCompleted is not what labour.completed.v1.json has released: weight was dropped" in done.output
    assert [path.name for path in released.iterdir()] == ["labour.completed.v1.json"], "nothing was written"


def test_a_released_event_whose_struct_is_gone_is_refused(released: Path) -> None:
    (released / "labour.paused.v1.json").write_text("{}")

    done = CliRunner().invoke(contracts.contracts, ["write"])

    assert done.exit_code == ContractBroken.exit_code
    assert "labour.paused.v1.json is released and has no struct any more" in done.output


def test_a_release_keeps_the_schemas_of_all_events(released: Path) -> None:
    done = CliRunner().invoke(contracts.contracts, ["release"])

    assert done.exit_code == 0, done.output
    for path in contracts.SCHEMAS.glob("*.json"):
        assert (released / path.name).read_text() == path.read_text()


ASYNCAPI: Schema = json.loads(contracts.ASYNCAPI.read_text())
VALIDATOR = jsonschema_rs.Draft7Validator(
    json.loads(Path(__file__).with_name("asyncapi-3.1.0.schema.json").read_text())
)


def test_the_asyncapi_document_is_valid_and_a_wrong_one_is_not() -> None:
    wrong = copy.deepcopy(ASYNCAPI)
    wrong["channels"]["labour.completed"]["adress"] = "labour.completed"

    assert [error.message for error in VALIDATOR.iter_errors(ASYNCAPI)] == []
    assert not VALIDATOR.is_valid(wrong)


def test_every_reference_of_the_asyncapi_document_leads_somewhere() -> None:
    for reference in re.findall(r'"\$ref": "#/([^"]+)"', contracts.ASYNCAPI.read_text()):
        found: Any = ASYNCAPI
        for part in reference.split("/"):
            found = found[part]


def test_the_asyncapi_document_has_every_event_and_every_subscription() -> None:
    operations = ASYNCAPI["operations"].values()
    received = {one["x-subscription"] for one in operations if one["action"] == "receive"}
    declared = Declared.load()

    assert ASYNCAPI["components"]["messages"].keys() == {f"{name}.v{version}" for name, version in EVENTS}
    assert received == {name for name, (_, dead) in declared.subscriptions.items() if dead}
    assert {one["x-dead-letter-topic"] for one in ASYNCAPI["channels"].values()} <= set(declared.topics)


@pytest.mark.parametrize("name", ASYNCAPI["components"]["messages"])
def test_the_example_of_a_message_matches_its_own_headers_and_payload(name: str) -> None:
    message = ASYNCAPI["components"]["messages"][name]
    (example,) = message["examples"]

    assert jsonschema_rs.is_valid(message["headers"], example["headers"])
    assert jsonschema_rs.is_valid(ASYNCAPI["components"]["schemas"][name], example["payload"])


def test_an_event_without_a_trace_and_a_sequence_has_the_headers_that_its_message_requires() -> None:
    headers = ASYNCAPI["components"]["messages"]["labour.completed.v1"]["headers"]
    id, now = UUID("01989a7c-3f00-7000-8000-000000000000"), datetime.now(UTC)
    sent = attributes(
        id=id, source="labour", type="labour.completed", version=1, subject=str(id), time=now, traceparent=None
    )

    assert jsonschema_rs.is_valid(headers, sent)
