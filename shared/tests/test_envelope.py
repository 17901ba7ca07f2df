"""CloudEvents on Pub/Sub: what one side writes the other reads, and what it cannot read it says so."""

from datetime import UTC, datetime, timedelta, timezone
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


@given(st.dictionaries(st.text(max_size=20), st.text(max_size=40), max_size=12), st.binary(max_size=40))
def test_no_garbage_ever_gets_further_than_undecodable(garbage: dict[str, str], data: bytes) -> None:
    with pytest.raises(Undecodable):
        open_envelope(garbage, data)
