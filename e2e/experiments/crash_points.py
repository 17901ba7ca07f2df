"""`python -m e2e.experiments.crash_points`: crash each process at each of its fault points, and write docs/crash-points.md.

A crash is a SIGKILL at the named place in the code, while the process handles the completion of a labour with two subscribers.
Then the process is started again, and both subscribers must get one text. `e2e/tests/test_crashes.py` does the same, and
compares what it observes with the page.
"""

import asyncio
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import click
import httpx

import messaging.consumer
import messaging.relay
import messaging.unit_of_work  # noqa: F401  (each of these imports registers fault points)
import notification.delivery.dispatcher
import notification.delivery.reconciler  # noqa: F401
from e2e.support.bus_tap import BusTap, Published, out_of_order
from e2e.support.databases import migrated_server, service_urls
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World, running_world
from fern.settings import PROJECT_ROOT
from messaging.faults import POINTS
from servicekit.logs import configure

PAGE = PROJECT_ROOT / "docs" / "crash-points.md"

# The fault points of each process, by the first part of their names; in the order of an event's path.
PROCESSES = {
    "labour-api": ("uow",),
    "labour-relay": ("relay",),
    "notification-consumer": ("uow", "consumer"),
    "notification-dispatcher": ("uow", "dispatcher", "reconcile"),
    "notification-api": ("uow",),
    "notification-relay": ("relay",),
    "labour-consumer": ("uow", "consumer"),
    "labour-statistics": ("uow", "consumer"),
}
# The consumers that absorb the repetition after a crash of each of these.
ABSORBED_BY = {
    "labour-relay": {"notification", "statistics"},
    "notification-consumer": {"notification"},
    "notification-relay": {"labour"},
    "labour-consumer": {"labour"},
    "labour-statistics": {"statistics"},
}
NOTHING_COMMITTED = "Nothing happened; the request or message comes again."
PUBLISHED_AGAIN = "Published again, in order; the claim absorbs the repetition."
ROLLED_BACK = "Neither claim nor effect; the bus delivers again."
FOUND = "The lease runs out, the provider is asked and has the text: it is not sent again."
PROMISES = {
    "uow.after_write_before_events": NOTHING_COMMITTED,
    "uow.before_commit": NOTHING_COMMITTED,
    "uow.after_commit_before_wakeup": "It happened, once, even if the request or message comes again; the poll finds the events.",
    "relay.after_read_before_publish": "The lanes are free; the next relay publishes.",
    "relay.after_publish_before_mark": PUBLISHED_AGAIN,
    "relay.after_mark_before_commit": PUBLISHED_AGAIN,
    "consumer.after_receive_before_claim": ROLLED_BACK,
    "consumer.after_claim_before_effect": ROLLED_BACK,
    "consumer.after_effect_before_complete": ROLLED_BACK,
    "consumer.after_commit_before_ack": "One effect; the bus delivers again, and the claim absorbs it.",
    "dispatcher.after_take_before_call": "The lease runs out, the provider is asked and has no such text: then it is sent.",
    "dispatcher.after_call_before_record": FOUND,
    "dispatcher.after_record_before_commit": FOUND,
    "reconcile.after_ask_before_record": "The outcome is still unknown, so the provider is asked again first.",
}
CASES = [
    (process, point) for process, parts in PROCESSES.items() for point in PROMISES if point.partition(".")[0] in parts
]
# Points behind a commit or a publish: the message is delivered once more.
REPEATED = ("uow.after_commit", "consumer.after_commit", "relay.after_publish", "relay.after_mark")


@dataclass(frozen=True)
class Observation:
    """What a crash led to. `counts` are those of the page's table; `violations` must be empty."""

    process: str
    point: str
    counts: list[int]
    published_again: set[str]
    absorbed: set[str]
    violations: list[str]

    def cells(self) -> list[str]:
        services = (", ".join(sorted(names)) or "—" for names in (self.published_again, self.absorbed))
        return [*map(str, self.counts), *services]

    def agrees_with(self, cells: list[str]) -> bool:
        """A slow machine may cause more repetitions than the page has, because a bus delivers at least once."""
        *counts, published_again, absorbed = cells
        return (
            counts == list(map(str, self.counts))
            and _names(published_again) <= self.published_again
            and _names(absorbed) <= self.absorbed
        )


def _names(cell: str) -> set[str]:
    return set() if cell == "—" else set(cell.split(", "))


def crash_at_every_point(world: World, tap: BusTap, process: str) -> Iterator[Observation]:
    """Crash the process at all of its points, one after the other, each time with a labour of its own.

    A message that a dead consumer held comes again only when its lease is over, ten seconds later. Other points are tested
    meanwhile; but the points behind a commit come first, and the first of them is waited for, so that it is known which crash
    caused which repetition.
    """
    labours = dict[str, PlannedLabour]()
    points = [point for name, point in CASES if name == process]
    points.sort(key=lambda point: not _is_repeated(process, point))
    for point in points:
        labour = labours[point] = world.plan("Grace", "Alan")
        until(lambda: _roster_version(world, labour) == 2, what="the roster is known")  # noqa: B023
        if point.startswith("reconcile."):
            # Without callbacks: on a slow machine they would resolve the doubt before the provider is asked.
            world.sms_sandbox.put("/faults/callbacks-lost", json={"rate": 1}).raise_for_status()
            world.sms_sandbox.put("/faults/reply-lost", json={"rate": 1, "times": 2}).raise_for_status()
        world.crash(process, point, cause=lambda: _complete(world, labour))  # noqa: B023
        world.sms_sandbox.delete("/faults/callbacks-lost").raise_for_status()
        world.start(process)
        if process == "labour-api":
            world.complete(labour)  # as a client does that got no answer
        if "consumer" not in PROCESSES[process] or point == points[0]:
            _settle(world, process, point, labour)
    for point, labour in labours.items():
        _settle(world, process, point, labour)
    published = asyncio.run(tap.drain())
    for point, labour in labours.items():
        world.until_nothing_is_lost_or_doubled(labour)  # again: a status callback may have come since
        yield _observe(world, process, point, labour, [one for one in published if one.labour_id == str(labour.id)])


def _complete(world: World, labour: PlannedLabour) -> None:
    with suppress(httpx.TransportError):  # the process that crashes may be the API
        world.complete(labour)


def _settle(world: World, process: str, point: str, labour: PlannedLabour) -> None:
    world.until_everyone_is_told(labour, COMPLETE)
    world.until_nothing_is_lost_or_doubled(labour)
    if _is_repeated(process, point):
        until(lambda: ABSORBED_BY[process] <= _absorbed(world, labour), what="the message is delivered again")


def _is_repeated(process: str, point: str) -> bool:
    return process in ABSORBED_BY and point.startswith(REPEATED)


def _roster_version(world: World, labour: PlannedLabour) -> int:
    rows = world.sql("notification", "SELECT version FROM roster WHERE labour_id = $1", labour.id)
    return rows[0][0] if rows else 0


def _observe(world: World, process: str, point: str, labour: PlannedLabour, published: list[Published]) -> Observation:
    return Observation(
        process,
        point,
        counts=_counts(world, labour),
        published_again=_published_again(published),
        absorbed=_absorbed(world, labour),
        violations=list(_violations(world, labour, published)),
    )


def _violations(world: World, labour: PlannedLabour, published: list[Published]) -> Iterator[str]:
    for name, texts in world.texts(labour).items():
        if texts != [COMPLETE]:
            yield f"{name} got {texts}"
    yield from map(str, out_of_order(published))
    for log in world.settings.logs.iterdir():
        if any(phone in log.read_text() for phone in labour.people.values()):
            yield f"{log.name} contains a phone number"


def _counts(world: World, labour: PlannedLabour) -> list[int]:
    """Committed, published, claimed, messages, texts, told, counted."""
    outbox = world.sql("labour", "SELECT event_id, published_at FROM outbox WHERE ordering_key = $1", str(labour.id))
    events = [row["event_id"] for row in outbox]
    return [
        len(outbox),
        sum(row["published_at"] is not None for row in outbox),
        world.count("notification", "processed_event WHERE status = 'COMPLETED' AND event_id = ANY($1)", events),
        world.count("notification", "notification WHERE labour_id = $1", labour.id),
        sum(len(texts) for texts in world.texts(labour).values()),
        world.count("labour", "told WHERE labour_id = $1", labour.id),
        world.count("labour", "statistics_posting WHERE labour_id = $1", labour.id),
    ]


def _published_again(published: Iterable[Published]) -> set[str]:
    """The services of whose events there is more than one copy on the bus."""
    copies = Counter((message.source, message.event_id) for message in published)
    return {source for (source, _), count in copies.items() if count > 1}


def _absorbed(world: World, labour: PlannedLabour) -> set[str]:
    """The consumers that were delivered an event again after its effect was committed."""
    claims = "SELECT consumer, event_id FROM processed_event WHERE deliveries > 1"
    again = [row for service in world.urls for row in world.sql(service, claims)]
    events = "SELECT event_id FROM outbox WHERE ordering_key = $1"
    ours = {row[0] for service in world.urls for row in world.sql(service, events, str(labour.id))}
    return {row["consumer"] for row in again if row["event_id"] in ours}


# The page

_TITLE = """# Every crash point

Fault points are named places in the code, each between two steps that are not atomic together:

| point | when a process dies there | what is promised |
|---|---|---|
"""
_OBSERVED = """
The experiment kills each process at each of its points (SIGKILL) while it handles the completion of a labour with two
subscribers, and starts it again. Afterwards, in every row, each subscriber has one text; the auditor has no finding
about the labour; the events of the labour were published in order; and no log contains a phone number. The counts are
the labour's events (4: planned, two subscribers added, completed), the events that the Notification service consumes
(3), the messages that it created, the texts on the phones, the messages that the Labour service knows to be sent, and
the events that its statistics have counted (1). They are the same in every row, because a crash may change no effect.
If a process dies after a commit or a publish and before it could acknowledge or record that, the step is repeated. Then
the last two columns name the service that published twice, and the consumers whose claims absorbed the repetition.

`e2e/tests/test_freezes.py` freezes each process at each of these points (SIGSTOP), in a system with two replicas of
each process, until every lease has expired and the replicas have notified each subscriber. Then it resumes the
processes (SIGCONT). No text is lost or duplicated, and no older text follows a newer one.

`.venv/bin/python -m e2e.experiments.crash_points` writes this page, and `e2e/tests/test_crashes.py` compares the page
with what it observes: a fault point without a row, and a row without its fault point, fail the build.

| the process that dies | at | committed | published | claimed | messages | texts | told | counted | published again | absorbed |
|---|---|---|---|---|---|---|---|---|---|---|
"""


def page(rows: Mapping[tuple[str, str], list[str]]) -> str:
    points = (f"| `{name}` | {POINTS[name].meaning} | {promise} |\n" for name, promise in PROMISES.items())
    observed = (f"| {process} | `{point}` | {' | '.join(rows[process, point])} |\n" for process, point in CASES)
    return _TITLE + "".join(points) + _OBSERVED + "".join(observed)


def rows_of_the_page() -> dict[tuple[str, str], list[str]]:
    lines = PAGE.read_text().rpartition("|---|\n")[2].splitlines()
    cells = (line.strip("| ").split(" | ") for line in lines)
    return {(process, point.strip("`")): seen for process, point, *seen in cells}


@click.command()
@click.option("--texts-only", is_flag=True, help="Crash nothing: write the page's texts, and keep its rows.")
def main(texts_only: bool) -> None:
    """Crash each process at each of its fault points, and write docs/crash-points.md."""
    rows = rows_of_the_page() if texts_only else observed_rows()
    PAGE.write_text(page(rows))


def observed_rows() -> dict[tuple[str, str], list[str]]:
    """Crash the processes of a system of its own; return the rows. Exits with code 1 if a promise is broken."""
    configure("crash-points", "CRITICAL")
    rows, violations = dict[tuple[str, str], list[str]](), list[str]()
    with (
        tempfile.TemporaryDirectory(prefix="fern-crash-") as directory,
        migrated_server(Path(directory)) as server,
        running_world(Path(directory) / "home", service_urls(server)) as world,
    ):
        tap = BusTap(world)
        for process in PROCESSES:
            for seen in crash_at_every_point(world, tap, process):
                rows[process, seen.point] = seen.cells()
                violations += [f"{process} at {seen.point}: {violation}" for violation in seen.violations]
                click.echo(f"{'✗' if seen.violations else '✓'} {process} {seen.point}", err=True)
    if violations:
        click.echo("\n".join(violations), err=True)
        sys.exit(1)
    return rows


if __name__ == "__main__":
    main(prog_name="python -m e2e.experiments.crash_points")
