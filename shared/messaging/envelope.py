"""CloudEvents 1.0 on Pub/Sub. We write binary mode: the context travels as message attributes, the data as it is.

Structured mode is read as well, where the message's body is one JSON object with the context and the data, and its content type
is `application/cloudevents+json`. Batches of events in one message are refused.

An envelope always has an id. A message without one cannot be deduplicated, so it is never handled.
"""

from base64 import b64decode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypeVar
from uuid import UUID

from asyncpg.pgproto import pgproto  # its UUID is a `uuid.UUID` in C: read and printed in a tenth of the time
from msgspec import DecodeError, Raw, Struct, json

from messaging.errors import Undecodable

T = TypeVar("T")

# The extension `sequence` of CloudEvents is a string that sorts (so ours is zero-padded), and need not be contiguous. Its type
# `Integer` says that it starts at 1 and rises by 1. A message without this type has a position of the outbox as its sequence, as
# all messages had once: it says nothing about what is missing.
CONTIGUOUS = "Integer"
STRUCTURED = "application/cloudevents+json"


class Envelope(Struct, frozen=True):
    """`sequence` counts the events of one source and subject from 1, without gaps. It is None for an event that was recorded
    before there were such sequences.
    """

    id: UUID
    source: str
    type: str
    version: int
    subject: str
    time: datetime
    traceparent: str | None
    data: bytes
    sequence: int | None = None


def attributes(
    *,
    id: UUID,
    source: str,
    type: str,
    version: int,
    subject: str,
    time: datetime,
    traceparent: str | None,
    sequence: int | None = None,
) -> dict[str, str]:
    """The attributes of an event in binary mode. Two have the trace context: Google's clients read it under another name."""
    traced = {"ce-traceparent": traceparent, "googclient_traceparent": traceparent} if traceparent else {}
    numbered = {} if sequence is None else {"ce-sequence": f"{sequence:020d}", "ce-sequencetype": CONTIGUOUS}
    return {
        "ce-specversion": "1.0",
        "ce-id": str(id),
        "ce-source": source,
        "ce-type": type,
        "ce-dataschema": f"urn:fernlabour:{type}:{version}",
        "ce-subject": subject,
        "ce-time": time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "content-type": "application/json",
        **traced,
        **numbered,
    }


_NEEDED = ("ce-specversion", "ce-dataschema", "ce-source", "ce-type", "ce-subject", "ce-time")
_needed = itemgetter(*_NEEDED)


def open_envelope(attributes: Mapping[str, str], data: bytes) -> Envelope:
    """Raises `Undecodable` with a stable reason; the detail names the attribute, never its value."""
    attributes, data = as_binary(attributes, data)
    if not (text := attributes.get("ce-id")):
        raise Undecodable("no-event-id", "attribute ce-id is missing")
    event_id = _parse(pgproto.UUID, text, "no-event-id", "attribute ce-id is not a UUID")
    if event_id.version != 7:
        raise Undecodable("no-event-id", "attribute ce-id is not a UUIDv7")
    try:
        needed = _needed(attributes)
    except KeyError:
        needed = ("",)
    if "" in needed:
        missing = next(name for name in _NEEDED if not attributes.get(name))
        raise Undecodable("bad-envelope", f"attribute {missing} is missing")
    specversion, schema, source, type, subject, time = needed
    if specversion != "1.0":
        raise Undecodable("bad-envelope", "attribute ce-specversion is not 1.0")
    content_type = attributes.get("content-type") or attributes.get("ce-datacontenttype") or "application/json"
    if _media_type(content_type) != "application/json":
        raise Undecodable("bad-envelope", "attribute content-type is not application/json")
    version, sequence = schema.rpartition(":")[2], None
    if attributes.get("ce-sequencetype") == CONTIGUOUS:
        text = attributes.get("ce-sequence", "")
        sequence = _parse(_sequence, text, "bad-envelope", "attribute ce-sequence is not a number")
    return Envelope(
        id=event_id,
        source=source,
        type=type,
        version=_parse(int, version, "bad-envelope", "attribute ce-dataschema does not end in a version"),
        subject=subject,
        time=_parse(datetime.fromisoformat, time, "bad-envelope", "attribute ce-time is not RFC 3339"),
        traceparent=attributes.get("ce-traceparent"),
        data=data,
        sequence=sequence,
    )


def as_binary(attributes: Mapping[str, str], data: bytes) -> tuple[Mapping[str, str], bytes]:
    """The attributes and the data of the event in binary mode. Of a structured message only the body counts."""
    if _media_type(attributes.get("content-type", "")) != STRUCTURED:
        return attributes, data
    try:
        body = _decode_body(data)
        context = {f"ce-{name}": str(_decode_value(value)) for name, value in body.items() if name not in _DATA}
        if "data_base64" in body:
            data = b64decode(json.decode(body["data_base64"], type=str), validate=True)
        else:
            data = bytes(body.get("data", b"null"))
    except (DecodeError, ValueError):
        raise Undecodable("bad-envelope", f"the body is not {STRUCTURED}") from None
    return context, data


_DATA = ("data", "data_base64")
_decode_body = json.Decoder(dict[str, Raw]).decode
_decode_value = json.Decoder(str | int | bool).decode  # the types of an attribute of CloudEvents


def _media_type(content_type: str) -> str:
    return content_type.partition(";")[0].strip().lower()


def _sequence(text: str) -> int:
    if not 0 < (number := int(text)) < 2**63:  # what the database can store
        raise ValueError(text)
    return number


def _parse(parser: Callable[[str], T], text: str, reason: str, detail: str) -> T:
    try:
        return parser(text)
    except ValueError:
        raise Undecodable(reason, detail) from None
