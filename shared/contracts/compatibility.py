"""Finds the changes of an event that are not compatible with its last released schema.

Two readers must go on working: a consumer of an older release reads new events, and today's code reads old ones, from a replay or
a dead letter. So a released version only changes by descriptions and by optional fields. Everything else is a new version.

| change | refused because |
|---|---|
| an optional field is added | allowed: older consumers ignore it, and today's code does without it |
| a required field is added | old events do not have it |
| a field is dropped, or no longer required | older consumers need it |
| the type or the format of a field changes | neither reader understands the other's values |
| a limit changes (pattern, minimum, length, …) | narrower: old events are refused; wider: older consumers refuse new events |
"""

from collections.abc import Iterator
from typing import Any

Schema = dict[str, Any]
_TYPES = ("type", "format", "anyOf", "enum", "items", "$ref")


def refusals(released: Schema, current: Schema) -> list[str]:
    """Every change that needs a new version, in words; empty if there is none."""
    return [*_of_fields(released, current), *_of_the_whole(released, current)]


def _of_fields(released: Schema, current: Schema) -> Iterator[str]:
    before, now = released["properties"], current["properties"]
    was_required, is_required = set(released.get("required", [])), set(current.get("required", []))
    for name in [name for name in before if name not in now]:
        yield f"{name} was dropped"
    for name, field in now.items():
        if name not in before:
            if name in is_required:
                yield f"{name} was added and is required"
            continue
        if name in is_required - was_required:
            yield f"{name} is required now"
        if name in was_required - is_required:
            yield f"{name} is not required any more"
        old, new = _meaning(before[name]), _meaning(field)
        if any(_kinds(old.get(key)) != _kinds(new.get(key)) for key in _TYPES):
            yield f"{name} has another type"
        elif old != new:
            yield f"{name} has other limits"


def _of_the_whole(released: Schema, current: Schema) -> Iterator[str]:
    """What a schema says about all fields, such as whether others are allowed."""
    own = ("properties", "required", "$id", "$schema")
    for key in sorted((released.keys() | current.keys()) - set(own)):
        if _meaning(released).get(key) != _meaning(current).get(key):
            yield f"{key} of the event changed"


def _kinds(value: Any) -> Any:
    """The types of a value without their limits."""
    if isinstance(value, list):
        return [{key: one[key] for key in _TYPES if key in one} if isinstance(one, dict) else one for one in value]
    return value


def _meaning(schema: Any) -> Any:
    """The schema without its descriptions, which bind no consumer."""
    if isinstance(schema, dict):
        return {key: _meaning(value) for key, value in schema.items() if (key, type(value)) != ("description", str)}
    return [_meaning(one) for one in schema] if isinstance(schema, list) else schema
