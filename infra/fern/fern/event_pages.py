"""Writes one page for each event, for developers of consumers: its schema, its path on the bus, and an example."""

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

# The values of fields whose schema allows any text; all other values follow from the schema.
_TEXTS = {
    "mother_name": "Ada",
    "name": "Grace",
    "baby_name": "Ida",
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
    "const": "constant",
}


def pages() -> dict[str, str]:
    """The text of each page by its file name, and `README.md`'s table of all events under the name `""`."""
    consumers = Declared.load().consumers()
    texts = {f"{name}.md": _page(name, consumers.get(name, [])) for name in _names()}
    return {**texts, "": _index(consumers)}


def example(event: type[Event]) -> dict[str, Any]:
    properties: dict[str, Any] = json_schema(event)["properties"]
    ids = iter(range(1, 10))
    return {name: _value(name, schema, ids) for name, schema in properties.items()}


def context(event: type[Event]) -> dict[str, str]:
    """The message attributes of an example of the event."""
    return attributes(
        id=UUID(_ID.format(0)),
        source=source(event),
        type=event.type,
        version=event.version,
        subject=example(event)["labour_id"],
        time=datetime.fromisoformat(_TIME).astimezone(UTC),
        traceparent=_TRACE,
        sequence=7,
    )


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
        f"| [{name}]({name}.md) | {source(_versions(name)[0])} | {_listed(consumers.get(name, []))} |"
        for name in _names()
    )
    return f"| event | recorded by | consumed by |\n|---|---|---|\n{rows}"


def _names() -> list[str]:
    return list(dict.fromkeys(name for name, _ in EVENTS))


def _versions(name: str) -> list[type[Event]]:
    """The structs of an event, the newest first."""
    return sorted((one for one in EVENTS.values() if one.type == name), key=lambda one: one.version, reverse=True)


def _page(name: str, consumers: list[str]) -> str:
    event, *older = _versions(name)
    schema = json_schema(event)
    return f"""# {event.type}

{schema["description"]}

| | |
|---|---|
| recorded by | the {source(event).capitalize()} service |
| topic | `{event.type}`; what a consumer cannot handle goes to `{event.type}.dlq` |
| consumed by | {_listed(consumers)} |
| key | the labour: `labour_id`, and the attribute `ce-subject` |
| schema | {_schema_file(event)} |

Order, duplicates, the sequence and how to tell two deliveries of one event apart: [the same for every event](README.md).

## Data

| field | type | |
|---|---|---|
{_fields(schema)}

## Example

The attributes of the message:

```json
{json.dumps(context(event), indent=2)}
```

Its data:

```json
{json.dumps(example(event), indent=2)}
```
{"".join(map(_older, older))}"""


def _older(event: type[Event]) -> str:
    """What a consumer needs to know of a version that is not the newest, and can still arrive."""
    schema = json_schema(event)
    return f"""
## Version {event.version}

{schema["description"]} Its schema is {_schema_file(event)}. It can arrive at any time: be ready for every version.

| field | type | |
|---|---|---|
{_fields(schema)}
"""


def _schema_file(event: type[Event]) -> str:
    name = f"{event.type}.v{event.version}.json"
    return f"[{name}](../../shared/contracts/schemas/{name})"


def _fields(schema: dict[str, Any]) -> str:
    return "\n".join(f"| `{name}` | {kind} | {', '.join(limits)} |" for name, kind, limits in fields(schema))


def fields(schema: dict[str, Any]) -> list[tuple[str, str, list[str]]]:
    """The name, type and limits of each field, in Markdown."""
    required = schema.get("required", [])
    return [
        (name, _type(name, one), [*_limits(one), *([] if name in required else ["optional"])])
        for name, one in schema["properties"].items()
    ]


def _type(name: str, schema: dict[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(_type(name, one) for one in schema["anyOf"])
    if schema["type"] == "string" and (name.endswith("_at") or schema.get("format") == "date-time"):
        return "time (RFC 3339)"
    return "UUID" if schema.get("format") == "uuid" else str(schema["type"])


def _limits(schema: dict[str, Any]) -> list[str]:
    limits: dict[str, Any] = {}
    for part in schema.get("anyOf", [schema]):
        limits |= part
    return [text.format(limits[name]) for name, text in _LIMITS.items() if name in limits]


def _listed(consumers: list[str]) -> str:
    return ", ".join(consumers) or "no service yet"
