"""The AsyncAPI document: every event, its topic, and which service sends and receives it, from contracts and topology.

The document is for programs; docs/events describes the same events for people. AsyncAPI's binding of Pub/Sub demands, for a
topic, a schema that is registered with Pub/Sub, which we do not use. So dead-letter topics and subscriptions are extensions
(`x-…`).
"""

from typing import Any

from contracts.events import Event
from contracts.registry import EVENTS, json_schema
from fern.event_pages import context, example, source
from fern.topology import Declared

VERSION = "3.1.0"
BINDING = {"googlepubsub": {"bindingVersion": "0.2.0"}}
Object = dict[str, Any]


def document() -> Object:
    declared = Declared.load()
    consumers = declared.consumers()
    topics = dict.fromkeys(event.type for event in EVENTS.values())
    return {
        "asyncapi": VERSION,
        "info": {
            "title": "FernLabour events",
            "version": "1.0.0",
            "description": "What a consumer may rely on is the same for every event: docs/events/README.md.",
            "license": {"name": "MIT"},
        },
        "defaultContentType": "application/json",
        "servers": {
            "production": {
                "host": "pubsub.googleapis.com",
                "protocol": "googlepubsub",
                "description": "Google Cloud Pub/Sub.",
            },
            "local": {
                "host": "127.0.0.1:8404",
                "protocol": "googlepubsub",
                "description": "The emulator of a local run.",
            },
        },
        "channels": {topic: _channel(topic, declared) for topic in topics},
        "operations": {
            f"{service}.{action}.{topic}": _operation(service, action, topic)
            for topic in topics
            for service, action in _operations(topic, consumers.get(topic, []))
        },
        "components": {
            "messages": {_name(event): _message(event) for event in EVENTS.values()},
            "schemas": {_name(event): _schema(event) for event in EVENTS.values()},
        },
    }


def _name(event: type[Event]) -> str:
    return f"{event.type}.v{event.version}"


def _versions(topic: str) -> list[str]:
    return [_name(event) for event in EVENTS.values() if event.type == topic]


def _operations(topic: str, consumers: list[str]) -> list[tuple[str, str]]:
    sender = next(source(event) for event in EVENTS.values() if event.type == topic)
    return [(sender, "send"), *((consumer, "receive") for consumer in consumers)]


def _channel(topic: str, declared: Declared) -> Object:
    dead = {letters for subscribed, letters in declared.subscriptions.values() if subscribed == topic and letters}
    return {
        "address": topic,
        "description": "A Pub/Sub topic.",
        "messages": {name: {"$ref": f"#/components/messages/{name}"} for name in _versions(topic)},
        "x-dead-letter-topic": next(iter(dead), f"{topic}.dlq"),
    }


def _operation(service: str, action: str, topic: str) -> Object:
    return {
        "action": action,
        "channel": {"$ref": f"#/channels/{topic}"},
        "messages": [{"$ref": f"#/channels/{topic}/messages/{name}"} for name in _versions(topic)],
        **({"x-subscription": f"{service}.{topic}"} if action == "receive" else {}),
    }


def _message(event: type[Event]) -> Object:
    attributes = context(event)
    return {
        "name": event.type,
        "title": _name(event),
        "summary": json_schema(event)["description"],
        "contentType": "application/json",
        "headers": {
            "type": "object",
            "description": "CloudEvents 1.0 in binary mode: the attributes of the message.",
            "properties": {name: _attribute(name, value) for name, value in attributes.items()},
            "required": [name for name in attributes if name not in OPTIONAL],
        },
        "payload": {"$ref": f"#/components/schemas/{_name(event)}"},
        "bindings": BINDING,
        "examples": [{"name": "one", "headers": attributes, "payload": example(event)}],
    }


OPTIONAL = ("ce-sequence", "ce-sequencetype", "ce-traceparent", "googclient_traceparent", "content-type")
_CONSTANT = ("ce-specversion", "ce-source", "ce-type", "ce-dataschema", "ce-sequencetype", "content-type")
_FORMATS = {"ce-id": "uuid", "ce-time": "date-time"}


def _attribute(name: str, value: str) -> Object:
    if name in _CONSTANT:
        return {"type": "string", "const": value}
    return {"type": "string", **({"format": _FORMATS[name]} if name in _FORMATS else {})}


def _schema(event: type[Event]) -> Object:
    """The event's JSON Schema without `$schema` and `$id`. AsyncAPI's schema object is JSON Schema draft 7, as the event's is."""
    return {name: value for name, value in json_schema(event).items() if not name.startswith("$")}
