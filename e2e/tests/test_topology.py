"""Contracts, topology and services name the same events and processes; what an addition may leave out is found here."""

import tomllib
from pathlib import Path
from uuid import uuid4

import msgspec
import pytest

import labour.application.told
import labour.consumer
import labour.domain.statistics
import notification.consumer
import notification.domain.reactions
from contracts.events import Event
from contracts.registry import EVENTS, json_schema
from e2e.experiments import crash_points
from fern.runtime.processes import processes
from fern.settings import CONSUMERS, PROJECT_ROOT, Settings
from notification.domain.reactions import react
from notification.domain.roster import Member, Roster

TOPICS: dict[str, list[str]] = tomllib.loads((Path(__file__).parents[2] / "infra/topology.toml").read_text())["topics"]
LABOUR = uuid4()
# The string is a valid phone number, and so valid as any other string.
ANY_VALUE = {"uuid": str(LABOUR), "string": "+12025550123", "integer": 1, "boolean": True}


def consumed_by(consumer: str) -> set[str]:
    return {topic for topic, consumers in TOPICS.items() if consumer in consumers}


def example(event: type[Event]) -> Event:
    values = {
        name: "2026-11-16T04:00:00Z" if name.endswith("_at") else ANY_VALUE[field.get("format") or field["type"]]
        for name, field in json_schema(event)["properties"].items()
    }
    return msgspec.convert(values, event)


def test_every_event_has_a_topic_and_every_topic_an_event() -> None:
    assert TOPICS.keys() == {event_type for event_type, _ in EVENTS}


def test_a_consumer_subscribes_to_exactly_the_events_that_it_handles() -> None:
    assert consumed_by(notification.consumer.NAME) == set(notification.domain.reactions.TOPICS)
    assert consumed_by(labour.consumer.NAME) == set(labour.application.told.TOPICS)
    assert consumed_by(labour.consumer.STATISTICS) == set(labour.domain.statistics.TOPICS)
    assert {consumer for consumers in TOPICS.values() for consumer in consumers} == CONSUMERS.keys()


def test_every_process_of_a_service_is_on_the_console_and_is_killed_at_its_fault_points() -> None:
    services = {process.name for process in processes(Settings(1024, PROJECT_ROOT)) if process.stage == "service"}
    page = (PROJECT_ROOT / "infra/fern/fern/console/page/pipeline.js").read_text()

    assert services == crash_points.PROCESSES.keys()
    assert [name for name in services if f'"{name}":' not in page] == []


@pytest.mark.parametrize("topic", notification.domain.reactions.TOPICS)
def test_every_event_that_notification_subscribes_to_has_a_reaction_and_its_words(topic: str) -> None:
    grace = Member(uuid4(), "Grace", "+12025550123", added_version=1)

    for event in (struct for (name, _), struct in EVENTS.items() if name == topic):
        decision = react(uuid4(), example(event), Roster(LABOUR, 1, (grace,)))
        assert not decision.early
        assert bool(decision.notifications) == (not topic.startswith("subscriber."))
