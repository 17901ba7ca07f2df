"""CloudEvents 1.0 on Pub/Sub, binary mode: the context travels as message attributes, the data as it is.

An envelope always has an id. A message without one cannot be deduplicated, so it is never handled.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypeVar
from uuid import UUID

from asyncpg.pgproto import pgproto  # its UUID is a `uuid.UUID` in C: read and printed in a tenth of the time
from msgspec import Struct

from messaging.errors import Undecodable

T = TypeVar("T")

# The extension `sequence` of CloudEvents is a string that sorts (so ours is zero-padded), and need not be contiguous. Its type
# `Integer` says that it starts at 1 and rises by 1. A message without this type has a position of the outbox as its sequence, as
# all messages had once: it says nothing about what is missing.
CONTIGUOUS = "Integer"


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
    traceparent: str,
    sequence: int | None = None,
) -> dict[str, str]:
    numbered = {} if sequence is None else {"ce-sequence": f"{sequence:020d}", "ce-sequencetype": CONTIGUOUS}
    return {
        "ce-specversion": "1.0",
        "ce-id": str(id),
        "ce-source": source,
        "ce-type": type,
        "ce-dataschema": f"urn:fernlabour:{type}:{version}",
        "ce-subject": subject,
        "ce-time": time.astimezone(UTC).isoformat().replace("+00:00", "Z"),
        "ce-traceparent": traceparent,
        "content-type": "application/json",
        **numbered,
    }


_NEEDED = ("ce-specversion", "ce-dataschema", "ce-source", "ce-type", "ce-subject", "ce-time")
_needed = itemgetter(*_NEEDED)


def open_envelope(attributes: Mapping[str, str], data: bytes) -> Envelope:
    """Raises `Undecodable` with a stable reason; the detail names the attribute, never its value."""
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
    if content_type.partition(";")[0].strip().lower() != "application/json":
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


def _sequence(text: str) -> int:
    if not 0 < (number := int(text)) < 2**63:  # what the database can store
        raise ValueError(text)
    return number


def _parse(parser: Callable[[str], T], text: str, reason: str, detail: str) -> T:
    try:
        return parser(text)
    except ValueError:
        raise Undecodable(reason, detail) from None
