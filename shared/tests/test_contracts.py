"""The events are what was published: both sides may rely on the schemas."""

import json
from pathlib import Path

import msgspec
import pytest

import contracts
from contracts.events import Event, LabourCompleted, LabourCompletedV2
from contracts.registry import EVENTS, UnknownEvent, WrongSchema, decode, json_schema
from contracts.upcasters import UPCASTERS, newest

SCHEMAS = Path(contracts.__file__).parent / "schemas"


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: f"{event.type}.v{event.version}")
def test_an_event_still_has_the_schema_that_was_published(event: type[Event]) -> None:
    published = SCHEMAS / f"{event.type}.v{event.version}.json"

    assert json.loads(published.read_text()) == json_schema(event), (
        f"{event.__name__} changed: a field that consumers must have is a new version, not an edit of {published.name}"
    )


def test_every_published_schema_still_has_its_event() -> None:
    published = {path.stem for path in SCHEMAS.glob("*.json")}

    assert published == {f"{name}.v{version}" for name, version in EVENTS}


COMPLETED = {
    "labour_id": "01a1e283-e2c1-72f9-a4d3-469915e434d8",
    "roster_version": 2,
    "mother_name": "Ada",
    "completed_at": "2026-11-16T04:00:00Z",
}


def test_a_consumer_ignores_fields_it_does_not_know() -> None:
    event = decode("labour.completed", 1, msgspec.json.encode({**COMPLETED, "weight_grams": 3400}))

    assert isinstance(event, LabourCompleted)
    assert event.mother_name == "Ada"


@pytest.mark.parametrize("event", EVENTS.values(), ids=lambda event: f"{event.type}.v{event.version}")
def test_every_version_of_an_event_leads_to_the_newest_one_step_by_step(event: type[Event]) -> None:
    versions = sorted(version for name, version in EVENTS if name == event.type)
    leading_on = event in UPCASTERS

    assert versions == list(range(1, versions[-1] + 1))
    assert leading_on == (event.version < versions[-1])


def test_a_birth_of_version_1_is_decoded_as_version_2_without_a_name_and_nothing_else_changes() -> None:
    older = decode("labour.completed", 1, msgspec.json.encode(COMPLETED))
    newer = decode("labour.completed", 2, msgspec.json.encode({**COMPLETED, "baby_name": "Ida"}))

    assert isinstance(older, LabourCompletedV2)
    assert msgspec.to_builtins(older) == {**COMPLETED, "baby_name": None}
    assert newer == msgspec.structs.replace(older, baby_name="Ida")
    assert newest(newer) is newer


def test_version_2_must_say_whether_there_is_a_name() -> None:
    with pytest.raises(WrongSchema, match="baby_name"):
        decode("labour.completed", 2, msgspec.json.encode(COMPLETED))


def test_an_unknown_type_or_version_is_refused_by_name() -> None:
    with pytest.raises(UnknownEvent, match=r"labour\.paused"):
        decode("labour.paused", 1, b"{}")
    with pytest.raises(UnknownEvent, match="version 9"):
        decode("labour.completed", 9, b"{}")


def test_a_wrong_payload_is_refused_without_repeating_what_is_in_it() -> None:
    added = {
        "labour_id": COMPLETED["labour_id"],
        "roster_version": 1,
        "person_id": COMPLETED["labour_id"],
        "name": "Grace",
    }

    with pytest.raises(WrongSchema) as refused:
        decode("subscriber.added", 1, msgspec.json.encode({**added, "phone": "0202 555 0123"}))

    assert "phone" in str(refused.value)
    assert "555" not in str(refused.value)
    assert "Grace" not in str(refused.value)
