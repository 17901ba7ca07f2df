"""Messages reach the Notification service by streaming pull, drain or push, with exactly-once delivery or without: the result is
the same under a bus that delivers every message twice.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.settings import PROJECT_ID
from fern.topology import Declared, apply

CONSUMER = "notification-consumer"


@contextmanager
def delivered_by(world: World, way: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Switch the subscriptions of the Notification service. Drain and push need no consumer, so it is stopped."""
    world.use_bus()
    for name, value in world.settings.push().items():
        monkeypatch.setenv(name, value)
    apply(Declared.load({"notification": "pull" if way == "drain" else way}), PROJECT_ID)
    if way in ("drain", "push"):
        world.stop(CONSUMER)
    try:
        yield
    finally:
        apply(Declared.load(), PROJECT_ID)
        if world.is_dead(CONSUMER):
            world.start(CONSUMER)


@pytest.fixture
def duplicates(world: World) -> Iterator[None]:
    """Every message is delivered twice, except where the bus promises exactly-once delivery."""
    world.pubsub.put("/faults/duplicate", json={}).raise_for_status()
    yield
    world.pubsub.delete("/faults").raise_for_status()


@pytest.mark.usefixtures("duplicates")
@pytest.mark.parametrize("way", ["pull", "drain", "push", "exactly-once"])
def test_everyone_gets_each_text_once_whichever_way_the_messages_come_in(
    world: World, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with delivered_by(world, way, monkeypatch):
        labour = world.plan("Grace", "Alan")
        world.complete(labour)
        if way == "drain":
            _drain_until_claimed(world, labour)
        world.until_everyone_is_told(labour, COMPLETE)
        if way in ("pull", "drain"):  # a copy that is pushed at the same time is refused, and counts as no delivery
            until(lambda: min(_deliveries(world, labour)) > 1, what="the bus has delivered each message twice")

    world.until_nothing_is_lost_or_doubled(labour)


def _drain_until_claimed(world: World, labour: PlannedLabour) -> None:
    """A text whose roster is still on its way is put off by the bus, possibly until after the drain: as the next job would."""
    until(
        lambda: world.count("labour", "outbox WHERE published_at IS NULL AND discarded_at IS NULL") == 0,
        what="all is published",
    )

    def drained() -> bool:
        done = world.run("notification", "consumer", "--drain")
        assert done.returncode == 0, done.stderr
        return world.count("notification", "notification WHERE labour_id = $1", labour.id) == 2

    until(drained, what="the text is claimed for both people")


def _deliveries(world: World, labour: PlannedLabour) -> list[int]:
    """How often the birth was delivered to the Notification service."""
    query = "SELECT event_id FROM outbox WHERE ordering_key = $1 AND topic = 'labour.completed'"
    events = [row["event_id"] for row in world.sql("labour", query, str(labour.id))]
    claims = "SELECT deliveries FROM processed_event WHERE event_id = ANY($1)"
    return [row["deliveries"] for row in world.sql("notification", claims, events)]
