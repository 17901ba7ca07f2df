"""Each process dies (SIGKILL) at each of its fault points, is started again, and everyone is told exactly once.

docs/crash-points.md is the table of what was promised and what was seen. A run compares itself with it; with FERN_WRITE_DOCS=1 it
writes it.
"""

import asyncio
import fcntl
import os
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache

import httpx
import pytest

import messaging.consumer
import messaging.relay
import messaging.unit_of_work  # noqa: F401  (each import below and above registers its points)
import notification.delivery.dispatcher
import notification.delivery.reconciler  # noqa: F401
from e2e.support.bus_tap import BusTap, Published, out_of_order
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, Labour, World
from fern.settings import PROJECT_ROOT
from messaging.faults import POINTS

# Which process has which points, by the first part of their names; in the order of the journey.
HAS = {
    "labour-api": ("uow",),
    "labour-relay": ("relay",),
    "notification-consumer": ("uow", "consumer"),
    "notification-dispatcher": ("uow", "dispatcher", "reconcile"),
    "notification-api": ("uow",),
    "notification-relay": ("relay",),
    "labour-consumer": ("uow", "consumer"),
}
CASES = [(victim, point) for victim, parts in HAS.items() for point in POINTS if point.partition(".")[0] in parts]
AGAIN = "Nothing happened; whoever asked for it asks again."
PROMISES = {
    "uow.after_write_before_events": AGAIN,
    "uow.before_commit": AGAIN,
    "uow.after_commit_before_wakeup": "It happened, once, whoever asks again; the poll finds what nobody was told of.",
    "relay.after_read_before_publish": "The lanes are free; the next relay publishes.",
    "relay.after_publish_before_mark": "Published again, in order; the claim absorbs the repetition.",
    "relay.after_mark_before_commit": "Published again, in order; the claim absorbs the repetition.",
    "consumer.after_receive_before_claim": "Neither claim nor effect; the bus delivers again.",
    "consumer.after_claim_before_effect": "Neither claim nor effect; the bus delivers again.",
    "consumer.after_effect_before_complete": "Neither claim nor effect; the bus delivers again.",
    "consumer.after_commit_before_ack": "One effect; the bus delivers again, and the claim absorbs it.",
    "dispatcher.after_take_before_call": "The lease runs out, the provider is asked and has nothing: then it is sent.",
    "dispatcher.after_call_before_record": "The lease runs out, the provider is asked and has it: not sent again.",
    "dispatcher.after_record_before_commit": "The lease runs out, the provider is asked and has it: not sent again.",
    "reconcile.after_ask_before_record": "Still in doubt, so the provider is asked again before anything else.",
}
# Points behind a commit or a publish: what was done is delivered once more.
REPEATED = ("uow.after_commit", "consumer.after_commit", "relay.after_publish", "relay.after_mark")


@dataclass
class Aftermath:
    labours: dict[str, Labour] = field(default_factory=dict)  # by fault point
    published: dict[str, list[Published]] = field(default_factory=dict)  # by labour


@pytest.fixture(scope="module")
def after_dying(world: World) -> Callable[[str], Aftermath]:
    """Each process dies everywhere, once, and its tests look at what came of it."""
    tap = BusTap(world)
    return cache(lambda victim: _die_everywhere(world, tap, victim))


def _die_everywhere(world: World, tap: BusTap, victim: str) -> Aftermath:
    """At all of its points, one after the other, each time over a labour of its own.

    What a dead consumer held comes again only when its lease is over, ten seconds later. Other points are tried meanwhile; but
    first come those behind a commit, and the first of them is waited for, so that we know what was repeated because of which.
    """
    seen = Aftermath()
    mine = (point for name, point in CASES if name == victim)
    points = sorted(mine, key=lambda point: not _is_repeated(victim, point))
    for point in points:
        labour = seen.labours[point] = world.plan("Grace", "Alan")
        until(lambda: _roster_version(world, labour) == 2, what="the roster is known")  # noqa: B023
        if point.startswith("reconcile."):
            world.sms_sandbox.put("/faults/reply-lost", json={"rate": 1, "times": 2}).raise_for_status()
        world.crash(victim, point, cause=lambda: _complete(world, labour))  # noqa: B023
        world.start(victim)
        if victim == "labour-api":
            world.complete(labour)  # as a client does that got no answer
        if not victim.endswith("-consumer") or point == points[0]:
            _settle(world, victim, point, labour)
    for point, labour in seen.labours.items():
        _settle(world, victim, point, labour)
    for message in asyncio.run(tap.drain()):
        seen.published.setdefault(message.labour_id, []).append(message)
    return seen


@pytest.mark.parametrize(("victim", "point"), CASES)
def test_a_crash_there_loses_nothing_and_doubles_nothing(
    world: World, after_dying: Callable[[str], Aftermath], victim: str, point: str
) -> None:
    seen = after_dying(victim)
    labour = seen.labours[point]
    published = seen.published[str(labour.id)]

    assert world.texts(labour) == {name: [COMPLETE] for name in labour.people}
    assert world.findings(labour) == []
    assert list(out_of_order(published)) == []
    assert not [
        log.name
        for log in world.settings.logs.iterdir()
        for phone in labour.people.values()
        if phone in log.read_text()
    ]
    row = Row(victim, point, _counts(world, labour), _published_again(published), _absorbed(world, labour))
    if WRITE:
        row.write()
    else:
        row.compare()


def test_every_point_has_its_row_and_every_row_its_point() -> None:
    assert PROMISES.keys() == POINTS.keys()
    assert {point for _, point in CASES} == POINTS.keys()
    if not WRITE:
        assert DOCS.read_text().startswith(_header())
        assert list(_rows()) == CASES


def _complete(world: World, labour: Labour) -> None:
    with suppress(httpx.TransportError):  # the API may be what dies
        world.complete(labour)


def _settle(world: World, victim: str, point: str, labour: Labour) -> None:
    world.until_everyone_is_told(labour, COMPLETE)
    world.until_nothing_is_lost_or_doubled(labour)
    if _is_repeated(victim, point):
        until(lambda: bool(_absorbed(world, labour)), what="what was done is delivered again")


def _is_repeated(victim: str, point: str) -> bool:
    return victim.endswith(("-relay", "-consumer")) and point.startswith(REPEATED)


def _roster_version(world: World, labour: Labour) -> int:
    rows = world.sql("notification", "SELECT version FROM roster WHERE labour_id = $1", labour.id)
    return rows[0][0] if rows else 0


def _counts(world: World, labour: Labour) -> list[int]:
    """Committed, published, claimed, messages, texts, told."""
    outbox = world.sql("labour", "SELECT event_id, published_at FROM outbox WHERE ordering_key = $1", str(labour.id))
    claims = "SELECT 1 FROM processed_event WHERE status = 'COMPLETED' AND event_id = ANY($1)"
    return [
        len(outbox),
        sum(row["published_at"] is not None for row in outbox),
        len(world.sql("notification", claims, [row["event_id"] for row in outbox])),
        len(world.sql("notification", "SELECT 1 FROM notification WHERE labour_id = $1", labour.id)),
        sum(len(texts) for texts in world.texts(labour).values()),
        len(world.sql("labour", "SELECT 1 FROM told WHERE labour_id = $1", labour.id)),
    ]


def _published_again(published: Iterable[Published]) -> set[str]:
    """The services of whose events there is more than one copy on the bus."""
    copies = Counter((message.source, message.event_id) for message in published)
    return {source for (source, _), count in copies.items() if count > 1}


def _absorbed(world: World, labour: Labour) -> set[str]:
    """The services that were delivered an event again when they had its effect."""
    claims = "SELECT event_id FROM processed_event WHERE deliveries > 1"
    again = {service: {row[0] for row in world.sql(service, claims)} for service in world.urls}
    events = "SELECT event_id FROM outbox WHERE ordering_key = $1"
    ours = {row[0] for service in world.urls for row in world.sql(service, events, str(labour.id))}
    return {service for service, events in again.items() if events & ours}


# The tables in the docs

WRITE = bool(os.environ.get("FERN_WRITE_DOCS"))
DOCS = PROJECT_ROOT / "docs" / "crash-points.md"
TITLE = """# Every crash point

Fault points are named places in the code, each between two steps that are not atomic together:

| point | when a process dies there | what is promised |
|---|---|---|
"""
OBSERVED = """
Each process is killed there (SIGKILL) over a labour with two people that has just been completed, and started again. Then, for
every row: both got the text, once; the auditor has nothing to say about the labour; its events were published in order; and no
log has a phone number. The counts are the labour's own events (4: planned, two people added, completed), those that the
Notification service takes (3), the messages it made of them, the texts on the phones, and what the Labour service was told. They
are the same in every row: that is the promise. What was done when the process died before it could say so is done again; then the
last columns name the service that published twice, and the one whose claims absorbed it.

Written by `FERN_WRITE_DOCS=1 make test ARGS=e2e/tests/test_crashes.py`. The tests compare themselves with it: a fault point
without a row, and a row without its fault point, fail the build.

| the process that dies | at | committed | published | claimed | messages | texts | told | published again | absorbed |
|---|---|---|---|---|---|---|---|---|---|
"""


def _header() -> str:
    points = (f"| `{name}` | {point.meaning} | {PROMISES[name]} |\n" for name, point in POINTS.items())
    return TITLE + "".join(points) + OBSERVED


@dataclass(frozen=True)
class Row:
    victim: str
    point: str
    counts: list[int]
    published_again: set[str]
    absorbed: set[str]

    def compare(self) -> None:
        """Of repetitions there may be more on a bad day: at least once is all that a bus promises."""
        *counts, published_again, absorbed = _rows()[self.victim, self.point]
        assert counts == list(map(str, self.counts))
        assert _names(published_again) <= self.published_again
        assert _names(absorbed) <= self.absorbed

    def write(self) -> None:
        with DOCS.open("a+") as file:  # the tests may run in several processes
            fcntl.flock(file, fcntl.LOCK_EX)
            again = [", ".join(sorted(names)) or "—" for names in (self.published_again, self.absorbed)]
            rows = _rows() | {(self.victim, self.point): [*map(str, self.counts), *again]}
            file.truncate(0)
            file.write(_header())
            file.writelines(
                f"| {' | '.join((case[0], f'`{case[1]}`', *rows[case]))} |\n" for case in CASES if case in rows
            )


def _rows() -> dict[tuple[str, str], list[str]]:
    observed = DOCS.read_text().partition(OBSERVED)[2]
    cells = (line.strip("| ").split(" | ") for line in observed.splitlines())
    return {(victim, point.strip("`")): seen for victim, point, *seen in cells}


def _names(cell: str) -> set[str]:
    return set() if cell == "—" else set(cell.split(", "))
