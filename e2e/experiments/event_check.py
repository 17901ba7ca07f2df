"""Whether every event is complete: python -m e2e.experiments.event_check, which `fern contracts check` and `make check` run.

An event is declared once, in `contracts.events`. Everything else that it needs is compared with that declaration: its schema and
page, its topic, the code that records it, the consumers that subscribe to it, their reactions, and the words of its messages. For
each step that is missing the program prints the file to open and what to do there. Exit code 31 if there is one.
"""

import re
import sys
import tomllib
from collections.abc import Iterator
from typing import NamedTuple
from uuid import uuid4

import msgspec

import labour.application.told
import labour.consumer
import labour.domain.statistics
import notification.consumer
import notification.domain.reactions
from contracts.events import Event
from contracts.registry import EVENTS, json_schema
from contracts.upcasters import UPCASTERS, newest
from fern.commands import contracts
from fern.errors import ContractBroken
from fern.settings import CONSUMERS, PROJECT_ROOT
from notification.domain.reactions import react
from notification.domain.roster import Member, Roster
from notification.domain.wording import TEMPLATES

INCOMPLETE = 31  # exit code

TOPOLOGY = "infra/topology.toml"
REACTIONS = "services/notification/notification/domain/reactions.py"
WORDING = "services/notification/notification/domain/wording.py"
# The topics that a consumer has reactions to, and the file that lists them.
HANDLED = {
    notification.consumer.NAME: (notification.domain.reactions.TOPICS, REACTIONS),
    labour.consumer.NAME: (labour.application.told.TOPICS, "services/labour/labour/application/told.py"),
    labour.consumer.STATISTICS: (labour.domain.statistics.TOPICS, "services/labour/labour/domain/statistics.py"),
}
RECORDED_IN = {
    "labour": ("services/labour/labour/domain", "services/labour/labour/domain/labour.py"),
    "notification": ("services/notification/notification", "services/notification/notification/delivery/ledger.py"),
}


class Missing(NamedTuple):
    file: str
    what: str


def missing() -> list[Missing]:
    return [*_generated(), *_topics(), *_recorded(), *_consumers(), *_reactions()]


def _generated() -> Iterator[Missing]:
    for event in EVENTS.values():
        if not vars(event).get("__doc__"):
            yield Missing(
                "shared/contracts/events.py", f"{event.__name__} needs a docstring that says what has happened."
            )
        if (event.type, event.version + 1) in EVENTS and event not in UPCASTERS:
            yield Missing(
                "shared/contracts/upcasters.py", f"{event.__name__} has a newer version and no upcaster to it: add one."
            )
    try:
        outdated = [
            path for path, text in contracts.generated().items() if not path.exists() or path.read_text() != text
        ]
    except ContractBroken as error:
        yield Missing("shared/contracts/events.py", error.message)
        return
    for path in [*outdated, *contracts.pages_of_no_event()]:
        yield Missing(str(path.relative_to(PROJECT_ROOT)), "It is not what the events say. Run `fern contracts write`.")


def _declared() -> dict[str, list[str]]:
    """The consumers of each topic."""
    topics: dict[str, list[str]] = tomllib.loads((PROJECT_ROOT / TOPOLOGY).read_text())["topics"]
    return topics


def _topics() -> Iterator[Missing]:
    declared, known = _declared().keys(), {event_type for event_type, _ in EVENTS}
    for topic in sorted(known - declared):
        yield Missing(TOPOLOGY, f'{topic} has no topic: add `"{topic}" = []`, with its consumers between the brackets.')
    for topic in sorted(declared - known):
        yield Missing(TOPOLOGY, f"No event is called {topic}: delete the topic, or add the event to the contracts.")


def _recorded() -> Iterator[Missing]:
    sources = {
        service: "\n".join(path.read_text() for path in sorted((PROJECT_ROOT / folder).rglob("*.py")))
        for service, (folder, _) in RECORDED_IN.items()
    }
    for (event_type, _), event in EVENTS.items():
        service = "notification" if event_type.startswith("notification.") else "labour"
        if not re.search(rf"\b{event.__name__}\b", sources[service]):
            yield Missing(RECORDED_IN[service][1], f"Nothing records {event.__name__}: add the rule that does.")


def _consumers() -> Iterator[Missing]:
    declared = _declared()
    for topic, consumers in declared.items():
        for consumer in consumers:
            if consumer not in CONSUMERS:
                yield Missing(
                    TOPOLOGY, f"{topic} has the consumer {consumer}, which is none of {', '.join(CONSUMERS)}."
                )
            elif topic not in HANDLED[consumer][0]:
                yield Missing(HANDLED[consumer][1], f"{consumer} subscribes to {topic}: add the event to TOPICS.")
    for consumer, (topics, _) in HANDLED.items():
        for topic in topics:
            if topic in declared and consumer not in declared[topic]:
                yield Missing(TOPOLOGY, f'{consumer} handles {topic}: add "{consumer}" to the consumers of the topic.')


def _reactions() -> Iterator[Missing]:
    """Give each event that Notification subscribes to to its reaction, for a roster with one member."""
    person = Member(uuid4(), "Grace", "+12025550123", added_version=1)
    for (event_type, _), event in EVENTS.items():
        if event_type not in notification.domain.reactions.TOPICS:
            continue
        one = example(event)
        if not event_type.startswith("subscriber.") and event_type not in TEMPLATES:
            yield Missing(WORDING, f"{event_type} notifies people and has no words: add it to TEMPLATES.")
            continue
        try:
            react(uuid4(), newest(one), Roster(one.labour_id, 1, (person,)))
        except TypeError:
            yield Missing(REACTIONS, f"react() has no case for {event.__name__}: add it to one.")


def example(event: type[Event]) -> Event:
    """An example of the event with valid values. Every text is a phone number, which is valid as any other text."""
    values = {"uuid": str(uuid4()), "string": "+12025550123", "integer": 1, "boolean": True}
    fields = {
        name: "2026-11-16T04:00:00Z" if name.endswith("_at") else values[field.get("format") or field["type"]]
        for name, whole in json_schema(event)["properties"].items()
        for field in whole.get("anyOf", [whole])[:1]
        if name in json_schema(event)["required"]
    }
    return msgspec.convert(fields, event)


if __name__ == "__main__":
    found = missing()
    for file, what in found:
        sys.stderr.write(f"{file}: {what}\n")
    if found:
        sys.stderr.write("CONTRIBUTING.md has all steps of adding an event.\n")
        sys.exit(INCOMPLETE)
    sys.stdout.write(f"{len(EVENTS)} events are complete\n")
