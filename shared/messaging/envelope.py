"""CloudEvents 1.0 on Pub/Sub, binary mode: the context travels as message attributes, the data as it is.

An envelope always has an id. A message without one cannot be deduplicated, so it is never handled.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from messaging.errors import Undecodable

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Envelope:
    id: UUID
    source: str
    type: str
    version: int
    subject: str
    time: datetime
    traceparent: str | None
    data: bytes


def attributes(
    *, id: UUID, source: str, type: str, version: int, subject: str, time: datetime, traceparent: str
) -> dict[str, str]:
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
    }


def sequence(position: int) -> str:
    """Zero-padded, because CloudEvents sequences are compared as strings."""
    return f"{position:020d}"


def open_envelope(attributes: Mapping[str, str], data: bytes) -> Envelope:
    """Raises `Undecodable` with a stable reason; the detail names the attribute, never its value."""

    def needed(name: str) -> str:
        if value := attributes.get(name):
            return value
        raise Undecodable("no-event-id" if name == "ce-id" else "bad-envelope", f"attribute {name} is missing")

    event_id = _parse(UUID, needed("ce-id"), "no-event-id", "attribute ce-id is not a UUID")
    if event_id.version != 7:
        raise Undecodable("no-event-id", "attribute ce-id is not a UUIDv7")
    if needed("ce-specversion") != "1.0":
        raise Undecodable("bad-envelope", "attribute ce-specversion is not 1.0")
    content_type = attributes.get("content-type") or attributes.get("ce-datacontenttype") or "application/json"
    if content_type.partition(";")[0].strip().lower() != "application/json":
        raise Undecodable("bad-envelope", "attribute content-type is not application/json")
    version = needed("ce-dataschema").rpartition(":")[2]
    return Envelope(
        id=event_id,
        source=needed("ce-source"),
        type=needed("ce-type"),
        version=_parse(int, version, "bad-envelope", "attribute ce-dataschema does not end in a version"),
        subject=needed("ce-subject"),
        time=_parse(datetime.fromisoformat, needed("ce-time"), "bad-envelope", "attribute ce-time is not RFC 3339"),
        traceparent=attributes.get("ce-traceparent"),
        data=data,
    )


def _parse(parser: Callable[[str], T], text: str, reason: str, detail: str) -> T:
    try:
        return parser(text)
    except ValueError:
        raise Undecodable(reason, detail) from None
