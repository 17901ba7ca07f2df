"""One page for each event, for those who consume our events: its schema, its path on the bus, and an example."""

import json
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from contracts.events import Event
from contracts.registry import EVENTS, json_schema
from fern.topology import Declared
from messaging.envelope import attributes

_ID = "01989a7c-3f00-7000-8000-00000000000{}"
_TIME = "2026-11-16T04:00:00Z"
_TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"

# The values of fields whose schema allows any text; the others follow from the schema.
_TEXTS = {
    "mother_name": "Ada",
    "name": "Grace",
    "phone": "+12025550123",
    "text": "On our way to the hospital",
    "role": "birth-partner",
    "phase": "active",
    "previous": "early",
    "channel": "sms",
    "cause_type": "labour.completed",
    "reason": "the number is unknown to its network",
}

_LIMITS = {
    "minimum": "at least {}",
    "maximum": "at most {}",
    "maxLength": "1 to {} characters",
    "pattern": "matches `{}`",
}


def pages() -> dict[str, str]:
    """The text of each page by its file name, and `README.md`'s table of all events under the name `""`."""
    consumers = Declared.load().consumers()
    texts = {f"{event.type}.md": _page(event, consumers.get(event.type, [])) for event in EVENTS.values()}
    return {**texts, "": _index(consumers)}


def example(event: type[Event]) -> dict[str, Any]:
    properties: dict[str, Any] = json_schema(event)["properties"]
    ids = iter(range(1, 10))
    return {name: _value(name, schema, ids) for name, schema in properties.items()}


def _value(name: str, schema: dict[str, Any], ids: Any) -> Any:
    if "anyOf" in schema:
        schema = next(one for one in schema["anyOf"] if one["type"] != "null")
    if name.endswith("_at"):
        return _TIME
    match schema:
        case {"format": "uuid"}:
            return _ID.format(next(ids))
        case {"type": "integer"}:
            return 3
        case {"type": "boolean"}:
            return True
        case _:
            return _TEXTS[name]


def source(event: type[Event]) -> str:
    """The service that records the event."""
    return "notification" if event.type.startswith("notification.") else "labour"


def _index(consumers: dict[str, list[str]]) -> str:
    rows = "\n".join(
        f"| [{event.type}]({event.type}.md) | {source(event)} | {_listed(consumers.get(event.type, []))} |"
        for event in EVENTS.values()
    )
    return f"| event | recorded by | consumed by |\n|---|---|---|\n{rows}"


def _page(event: type[Event], consumers: list[str]) -> str:
    schema, name = json_schema(event), f"{event.type}.v{event.version}.json"
    data = example(event)
    context = attributes(
        id=UUID(_ID.format(0)),
        source=source(event),
        type=event.type,
        version=event.version,
        subject=data["labour_id"],
        time=datetime.fromisoformat(_TIME).astimezone(UTC),
        traceparent=_TRACE,
        sequence=7,
    )
    return f"""# {event.type}

{schema["description"]}

| | |
|---|---|
| recorded by | the {source(event).capitalize()} service |
| topic | `{event.type}`; what a consumer cannot handle goes to `{event.type}.dlq` |
| consumed by | {_listed(consumers)} |
| key | the labour: `labour_id`, and the attribute `ce-subject` |
| schema | [{name}](../../shared/contracts/schemas/{name}) |

Order, duplicates, the sequence and how to tell two deliveries of one event apart: [the same for every event](README.md).

## Data

| field | type | |
|---|---|---|
{_fields(schema)}

## Example

The attributes of the message:

```json
{json.dumps(context, indent=2)}
```

Its data:

```json
{json.dumps(data, indent=2)}
```
"""


def _fields(schema: dict[str, Any]) -> str:
    required = schema.get("required", [])
    return "\n".join(
        f"| `{name}` | {_type(name, one)} | {', '.join([*_limits(one), *([] if name in required else ['optional'])])} |"
        for name, one in schema["properties"].items()
    )


def _type(name: str, schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(name, one) for one in schema["anyOf"])
    if schema["type"] == "string" and name.endswith("_at"):
        return "time (RFC 3339)"
    return "UUID" if schema.get("format") == "uuid" else str(schema["type"])


def _limits(schema: dict[str, Any]) -> list[str]:
    limits: dict[str, Any] = {}
    for part in schema.get("anyOf", [schema]):
        limits |= part
    return [text.format(limits[name]) for name, text in _LIMITS.items() if name in limits]


def _listed(consumers: list[str]) -> str:
    return ", ".join(consumers) or "no service yet"
