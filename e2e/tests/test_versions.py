"""A rolling upgrade to version 2 of labour.completed: consumers of both releases at once, and no birth is lost or told twice."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from e2e.support.waiting import PATIENCE, until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.settings import PROJECT_ROOT

NAMED = COMPLETE.replace("given birth", "given birth to Ida")
# A process of the Notification service whose contracts have no version 2 yet.
OLDER = """
import runpy
from contracts.registry import EVENTS
del EVENTS["labour.completed", 2]
runpy.run_module("notification", run_name="__main__")
"""


@contextmanager
def consumer_of_the_older_release(world: World) -> Iterator[None]:
    """Is stopped as an orchestrator does: it finishes what it holds."""
    command = [sys.executable, "-c", OLDER, "consumer"]
    with (
        world.settings.log("older-consumer").open("ab") as log,
        subprocess.Popen(command, cwd=PROJECT_ROOT, env=world.environment(), stdout=log, stderr=log) as process,
    ):
        try:
            yield
        finally:
            process.terminate()
            assert process.wait(PATIENCE) == 0


def births(world: World) -> tuple[PlannedLabour, PlannedLabour]:
    """One whose baby has no name yet, recorded as version 1, and one whose baby has a name, recorded as version 2."""
    unnamed, named = world.plan("Alan"), world.plan("Grace")
    world.complete(unnamed)
    world.request(named, "PUT", "/complete", {"baby_name": " Ida "})
    return unnamed, named


def schemas(world: World, labours: tuple[PlannedLabour, ...]) -> list[str]:
    query = "SELECT attributes ->> 'ce-dataschema' FROM outbox WHERE ordering_key = $1 AND topic = 'labour.completed'"
    return [row[0] for labour in labours for row in world.sql("labour", query, str(labour.id))]


def refused(world: World) -> Any:
    groups = world.fern("dlq", "ls")["groups"]
    return {(group["topic"], group["consumer"], group["reason"]): group["count"] for group in groups}


def test_consumers_of_both_releases_run_side_by_side_and_a_redrive_after_the_upgrade_loses_no_birth(
    world: World,
) -> None:
    world.stop("notification-consumer")
    with consumer_of_the_older_release(world):
        before = births(world)
        world.until_everyone_is_told(before[0], COMPLETE)
        waiting = until(lambda: refused(world), what="the older consumer has refused version 2")

        world.start("notification-consumer")
        during = births(world)
        world.until_everyone_is_told(during[0], COMPLETE)
    after = births(world)
    for labour, told in zip(after, (COMPLETE, NAMED), strict=True):
        world.until_everyone_is_told(labour, told)
    early = world.texts(before[1])
    world.fern("dlq", "redrive", "--reason", "unknown-version")

    assert schemas(world, before) == [f"urn:fernlabour:labour.completed:{version}" for version in (1, 2)]
    assert waiting == {("labour.completed", "notification", "unknown-version"): 1}, "statistics is of today's release"
    assert early == {"Grace": []}
    for unnamed, named in (before, during, after):
        world.until_everyone_is_told(unnamed, COMPLETE)
        world.until_everyone_is_told(named, NAMED)
    until(lambda: refused(world) == {}, what="no dead letter is left")
