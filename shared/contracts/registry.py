"""Finds the struct of an event by its name and version, decodes events, and makes their JSON Schemas."""

from typing import Any

import msgspec

from contracts import events
from contracts.upcasters import newest

# Every concrete struct of `contracts.events`; an abstract base has no `type` of its own.
EVENTS: dict[tuple[str, int], type[events.Event]] = {
    (struct.type, struct.version): struct
    for struct in vars(events).values()
    if isinstance(struct, type) and issubclass(struct, events.Event) and hasattr(struct, "type")
}


def topics_of(service: str) -> tuple[str, ...]:
    """The types of the events that a service records, which name their topics. `notification.*` are those of the Notification
    service; all others are of the Labour service.
    """
    types = sorted({event_type for event_type, _ in EVENTS})
    return tuple(one for one in types if one.startswith("notification.") == (service == "notification"))


class UnknownEvent(Exception):
    def __init__(self, event_type: str, version: int) -> None:
        super().__init__(f"no event {event_type!r} in version {version} in the contracts")
        self.event_type, self.version = event_type, version


class WrongSchema(Exception):
    """Says which field is wrong and never what was in it: payloads hold personal data."""

    def __init__(self, event_type: str, problem: str) -> None:
        super().__init__(f"{event_type}: {problem}")
        self.event_type, self.problem = event_type, problem


def decode(event_type: str, version: int, data: bytes) -> events.Event:
    """The event in its newest version, also if an older one was published."""
    try:
        struct = EVENTS[event_type, version]
    except KeyError:
        raise UnknownEvent(event_type, version) from None
    try:
        return newest(msgspec.json.decode(data, type=struct))
    except msgspec.DecodeError as error:
        raise WrongSchema(event_type, str(error)) from None


def json_schema(event: type[events.Event]) -> dict[str, Any]:
    """The schema as published, with everything inline."""
    schema = msgspec.json.schema(event)
    body: dict[str, Any] = schema["$defs"][event.__name__]
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:fernlabour:{event.type}:{event.version}",
        **body,
    }
