"""Each process dies (SIGKILL) at each of its fault points, is started again, and everyone is told exactly once."""

import httpx
import pytest

import messaging.consumer
import messaging.relay
import messaging.unit_of_work  # noqa: F401  (each import below and above registers its points)
import notification.dispatcher
import notification.reconcile  # noqa: F401
from e2e.world import COMPLETE, TAKEN, World
from messaging.faults import POINTS

VICTIMS = {
    "uow": ("labour-api", "notification-consumer", "notification-dispatcher"),
    "relay": ("labour-relay", "notification-relay"),
    "consumer": ("notification-consumer", "labour-consumer"),
    "dispatcher": ("notification-dispatcher",),
    "reconcile": ("notification-dispatcher",),
}
CASES = [(victim, point) for point in POINTS for victim in VICTIMS[point.partition(".")[0]]]


@pytest.mark.parametrize(("victim", "point"), CASES)
def test_a_crash_there_loses_nothing_and_doubles_nothing(world: World, victim: str, point: str) -> None:
    labour = world.plan("Grace", "Alan")
    world.until(lambda: _caught_up(world), "the roster is known")
    if point.startswith("reconcile."):
        world.phones.put("/faults/reply-lost", json={"rate": 1, "times": 2}).raise_for_status()
    world.kill(victim)
    world.start(victim, crash_at=point)
    try:
        world.complete(labour)
    except httpx.TransportError:
        assert victim == "labour-api"
    world.until(lambda: world.is_dead(victim), f"{victim} has crashed at {point}")

    world.start(victim)
    if victim == "labour-api":
        world.complete(
            labour
        )  # as a client does that got no answer: before the commit nothing had happened, after it all

    world.until_everyone_is_told(labour, COMPLETE)
    world.until(lambda: _caught_up(world), "all is published and claimed")
    world.assert_nothing_lost_or_doubled(labour)


def _caught_up(world: World) -> bool:
    waiting = [
        world.sql(service, "SELECT 1 FROM outbox WHERE published_at IS NULL") for service in ("labour", "notification")
    ]
    events = world.sql("labour", "SELECT event_id FROM outbox WHERE topic = ANY($1)", list(TAKEN))
    claims = world.sql("notification", "SELECT event_id FROM processed_event WHERE status = 'COMPLETED'")
    return not any(waiting) and {row["event_id"] for row in events} == {row["event_id"] for row in claims}
