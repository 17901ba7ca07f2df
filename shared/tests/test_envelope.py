"""CloudEvents on Pub/Sub: what one side writes the other reads, and what it cannot read it says so."""

import json
from base64 import b64encode
from datetime import UTC, datetime, timedelta, timezone
from typing import Any
from uuid import UUID, uuid4

import pytest
from hypothesis import given
from hypothesis import strategies as st
from uuid_utils.compat import uuid7

from messaging.envelope import attributes, open_envelope
from messaging.errors import Undecodable

NOON = datetime(2026, 11, 16, 12, tzinfo=UTC)
TRACE = "00-" + "a" * 32 + "-" + "b" * 16 + "-01"


def written(event_id: UUID | None = None, time: datetime = NOON, sequence: int | None = None) -> dict[str, str]:
    return attributes(
        id=event_id or uuid7(),
        source="labour",
        type="labour.completed",
        version=1,
        subject="some-labour",
        time=time,
        traceparent=TRACE,
        sequence=sequence,
    )


def test_what_is_written_is_read_back() -> None:
    event_id = uuid7()

    envelope = open_envelope(written(event_id), b'{"a":1}')

    assert envelope.id == event_id
    assert (envelope.type, envelope.version, envelope.subject) == ("labour.completed", 1, "some-labour")
    assert (envelope.time, envelope.traceparent, envelope.data) == (NOON, TRACE, b'{"a":1}')


def test_times_are_written_in_utc() -> None:
    in_tokyo = NOON.astimezone(timezone(timedelta(hours=9)))

    assert written(time=in_tokyo)["ce-time"] == "2026-11-16T12:00:00Z"


@pytest.mark.parametrize(
    "missing", ["ce-specversion", "ce-source", "ce-type", "ce-dataschema", "ce-subject", "ce-time"]
)
def test_an_envelope_with_something_missing_says_what(missing: str) -> None:
    incomplete = written()
    del incomplete[missing]

    with pytest.raises(Undecodable, match=missing) as refused:
        open_envelope(incomplete, b"{}")
    assert refused.value.reason == "bad-envelope"


@pytest.mark.parametrize("event_id", [None, "", "not-a-uuid", str(uuid4())], ids=["none", "empty", "text", "uuid4"])
def test_a_message_that_cannot_be_deduplicated_is_never_an_event(event_id: str | None) -> None:
    bad = {key: value for key, value in {**written(), "ce-id": event_id}.items() if value is not None}

    with pytest.raises(Undecodable) as refused:
        open_envelope(bad, b"{}")
    assert refused.value.reason == "no-event-id"


@pytest.mark.parametrize(
    ("attribute", "value"),
    [
        ("ce-specversion", "0.3"),
        ("ce-time", "yesterday"),
        ("ce-dataschema", "urn:x"),
        ("ce-sequence", "first"),
        ("ce-sequence", "0"),
        ("ce-sequence", str(2**63)),
        ("content-type", "text/xml"),
    ],
)
def test_a_malformed_envelope_is_refused(attribute: str, value: str) -> None:
    with pytest.raises(Undecodable, match=attribute):
        open_envelope({**written(sequence=1), attribute: value}, b"{}")


@given(st.integers(min_value=1, max_value=2**63 - 1), st.integers(min_value=1, max_value=2**63 - 1))
def test_sequences_compare_as_text_like_the_numbers_they_stand_for_and_come_back_as_numbers(
    one: int, other: int
) -> None:
    first, second = written(sequence=one), written(sequence=other)

    assert (first["ce-sequence"] < second["ce-sequence"]) == (one < other)
    assert open_envelope(first, b"{}").sequence == one


def test_the_sequence_of_an_old_message_was_a_position_and_is_not_taken_for_a_sequence() -> None:
    assert open_envelope({**written(), "ce-sequence": "00000000000000004711"}, b"{}").sequence is None


STRUCTURED = {"content-type": "application/cloudevents+json; charset=utf-8"}


def structured(context: dict[str, str], **members: Any) -> bytes:
    """The same event in structured mode."""
    named = {name.removeprefix("ce-"): value for name, value in context.items() if name.startswith("ce-")}
    return json.dumps({**named, "datacontenttype": context["content-type"], **members}).encode()


def test_an_event_in_structured_mode_is_the_same_envelope_as_in_binary_mode() -> None:
    context = written(sequence=7)

    envelope = open_envelope(STRUCTURED, structured(context, data={"a": 1}))

    assert envelope == open_envelope(context, b'{"a": 1}')


def test_the_data_of_a_structured_event_may_be_encoded() -> None:
    context = written()

    envelope = open_envelope(STRUCTURED, structured(context, data_base64=b64encode(b'{"a":1}').decode()))

    assert envelope == open_envelope(context, b'{"a":1}')


def test_of_a_structured_message_the_body_counts_and_no_attribute() -> None:
    other = uuid7()

    envelope = open_envelope({**written(), **STRUCTURED}, structured(written(other), data={}))

    assert envelope.id == other


@pytest.mark.parametrize(
    ("body", "reason"),
    [
        (b"", "bad-envelope"),
        (b"no JSON", "bad-envelope"),
        (b"[]", "bad-envelope"),
        (b"{}", "no-event-id"),
        (structured(written(), id={"nested": 1}, data={}), "bad-envelope"),
        (structured(written(), data_base64="?"), "bad-envelope"),
        (structured(written(), id=str(uuid4()), data={}), "no-event-id"),
        (structured(written(), datacontenttype="text/xml", data="<a/>"), "bad-envelope"),
        (structured(written(), specversion="0.3", data={}), "bad-envelope"),
    ],
)
def test_a_malformed_structured_event_is_refused(body: bytes, reason: str) -> None:
    with pytest.raises(Undecodable) as refused:
        open_envelope(STRUCTURED, body)
    assert refused.value.reason == reason


def test_a_batch_of_structured_events_is_refused() -> None:
    with pytest.raises(Undecodable, match="content-type"):
        open_envelope({**written(), "content-type": "application/cloudevents-batch+json"}, b"[]")


@given(st.binary(max_size=60))
def test_no_garbage_in_structured_mode_gets_further_than_undecodable(body: bytes) -> None:
    with pytest.raises(Undecodable):
        open_envelope(STRUCTURED, body)


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=12), st.binary(max_size=40))
def test_no_garbage_ever_gets_further_than_undecodable(garbage: dict[str, str], data: bytes) -> None:
    with pytest.raises(Undecodable):
        open_envelope(garbage, data)
