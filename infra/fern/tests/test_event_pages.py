"""What is generated from the events: their schemas and their pages."""

import copy
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from contracts.events import Event, LabourCompleted
from contracts.registry import EVENTS, decode, json_schema
from fern.commands import contracts
from fern.errors import ContractBroken
from fern.event_pages import example

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


@pytest.mark.parametrize(
    ("change", "allowed"),
    [
        (describe_otherwise, True),
        (add_an_optional_field, True),
        (add_a_required_field, False),
        (drop_a_field, False),
        (require_no_more, False),
        (change_a_type, False),
    ],
)
def test_a_published_schema_changes_only_by_descriptions_and_optional_fields(
    change: Callable[[Schema], None], allowed: bool
) -> None:
    published = json_schema(LabourCompleted)
    changed = copy.deepcopy(published)
    change(changed)

    assert contracts.keeps(published, changed) is allowed


def test_an_event_that_contradicts_its_published_schema_is_refused_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = json_schema(LabourCompleted)
    drop_a_field(published)
    (tmp_path / "labour.completed.v1.json").write_text(json.dumps(published))
    monkeypatch.setattr(contracts, "SCHEMAS", tmp_path)

    done = CliRunner().invoke(contracts.contracts, ["write"])

    assert done.exit_code == ContractBroken.exit_code
    assert "LabourCompleted is not what labour.completed.v1.json has published" in done.output
    assert [path.name for path in tmp_path.iterdir()] == ["labour.completed.v1.json"], "nothing was written"
