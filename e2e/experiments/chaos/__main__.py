"""`fern chaos`: run labours while faults are injected, from a seed; then account for every event and every text.

It starts its own system, with its own PostgreSQL, bus and SMS sandbox, and never touches one that is running already. Exit code
20 if anything was lost, duplicated, out of order or unexplained; then it prints the trace of one such event.
"""

import asyncio
import itertools
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.live import Live

from e2e.experiments.chaos.accounting import ChaosAccount, take_account
from e2e.experiments.chaos.fault_injector import FaultInjector, replicated_world
from e2e.experiments.chaos.load_generator import ClientLog, generate_load
from e2e.experiments.chaos.schedule import LEFT_OUT, ScheduledFault, schedule
from e2e.support.bus_tap import BusTap
from e2e.support.world import World
from fern.errors import FernError, NotClean
from fern.output import json_option, make_console, print_json
from fern.runtime.postgres import TemporaryServer
from fern.trace import journey
from labour.domain.statistics import TOPICS as FOR_STATISTICS
from messaging.database import is_transient
from notification.domain.reactions import TOPICS as FOR_NOTIFICATION
from servicekit.logs import configure

QUIET_WITHIN = 180.0  # seconds after the last fault in which every event must be processed
QUIET_FOR = 2.0  # seconds without a change, after which the system counts as quiet
PRINT_EVERY = 20  # looks at the counts
STDERR = Console(stderr=True, highlight=False)


@dataclass(slots=True)
class Run:
    """The state of a run, during it and afterwards."""

    seed: int
    seconds: float
    phase: str = "starting"
    began: float = field(default_factory=time.monotonic)
    log: ClientLog = field(default_factory=ClientLog)
    actions: list[ScheduledFault] = field(default_factory=list)
    active: set[str] = field(default_factory=set)  # the faults of this moment
    injected: dict[str, int] = field(default_factory=dict)
    committed: int = 0
    texts: int = 0
    unfinished: int = 0
    observed: float = 0.0  # when the observation began that found these
    account: ChaosAccount = field(default_factory=ChaosAccount)

    @property
    def command(self) -> str:
        return f"fern chaos --seconds {self.seconds:g} --seed {self.seed}"

    def enter(self, phase: str) -> None:
        self.phase, self.began = phase, time.monotonic()

    def __rich__(self) -> str:
        of = f" of {self.seconds:g}" if self.phase == "injecting faults" else ""
        line = f"[bold]{self.phase}[/] {time.monotonic() - self.began:.0f}{of} s"
        if self.actions:
            line += f" · {self.log.labours} labours · {self.committed} events · {self.texts} texts"
            line += f" · {self.unfinished} unfinished"
        return line + "".join(f" · [red]{fault}[/]" for fault in sorted(self.active))

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "repeat": self.command,
            "schedule": [asdict(action) for action in self.actions],
            "injected": self.injected,
            "clients": self.log.counts(),
            "account": self.account.counts,
            **{kind.replace("-", "_"): count for kind, count in self.account.totals.items()},
            "findings": [asdict(finding) for finding in self.account.findings],
            "left_out": LEFT_OUT,
        }


async def inject_faults_under_load(world: World, server: TemporaryServer, run: Run) -> None:
    tap, stop = BusTap(world), asyncio.Event()
    run.actions = schedule(run.seed, run.seconds, world.started)
    injector = FaultInjector(world, server, run.actions, run.active)
    run.enter("injecting faults")
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(injector.supervise()), tasks.create_task(_observe(world, run))]
        load = tasks.create_task(generate_load(world.labour_apis, run.log, run.seed, stop))
        await injector.run(run.seconds)
        run.injected = dict(injector.injected)
        run.enter("finishing labours")
        stop.set()
        await load
        run.enter("waiting until it is quiet")
        await _until_quiet(run)
        for task in background:
            task.cancel()
    run.enter("accounting")
    run.account = await take_account(world, run.log, tap, injector.poison)
    run.account.add_deaths(injector.died)


async def _observe(world: World, run: Run) -> None:
    """Keep the counts of the run up to date. Without a terminal, print them every few seconds."""
    for look in itertools.count():
        began = time.monotonic()
        try:
            run.committed, run.texts, run.unfinished = await asyncio.to_thread(progress_of, world)
            run.observed = began
        except Exception as error:
            if not (is_transient(error) or isinstance(error, sqlite3.Error)):  # the databases have faults, too
                raise
        if look % PRINT_EVERY == 0 and not STDERR.is_terminal:
            STDERR.print(run, soft_wrap=True)
        await asyncio.sleep(0.5)


async def _until_quiet(run: Run) -> None:
    """The account names what has not arrived when the time is over."""
    deadline, quiet_since, last = time.monotonic() + QUIET_WITHIN, time.monotonic(), -1
    while time.monotonic() < deadline and run.observed - quiet_since < QUIET_FOR:
        if run.unfinished or run.committed != last:
            quiet_since, last = time.monotonic(), run.committed
        await asyncio.sleep(0.2)


def progress_of(world: World) -> tuple[int, int, int]:
    """How many events are committed, how many messages are settled, and how many steps are still to come."""
    committed = world.count("labour", "outbox") + world.count("notification", "outbox")
    unsettled = world.count("notification", "notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')")
    texts = world.count("notification", "notification") - unsettled
    unpublished = sum(world.count(service, "outbox WHERE published_at IS NULL") for service in world.urls)
    recorded, done = "outbox WHERE topic = ANY($1)", "processed_event WHERE status = 'COMPLETED' AND consumer = $1"
    unclaimed = world.count("labour", recorded, FOR_NOTIFICATION) - world.count("notification", done, "notification")
    unclaimed += world.count("labour", recorded, FOR_STATISTICS) - world.count("labour", done, "statistics")
    unclaimed += world.count("notification", "outbox") - world.count("labour", done, "labour")
    return committed, texts, unsettled + unpublished + unclaimed + _pending_at_the_provider(world)


def _pending_at_the_provider(world: World) -> int:
    """Texts that are not yet delivered, and callbacks that will cause events: only the sandbox's own file has them."""
    file = world.settings.home / "sms" / "sms.sqlite3"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        texts = store.execute("SELECT count(*) FROM message WHERE step_at IS NOT NULL").fetchone()
        callbacks = store.execute("SELECT count(*) FROM callback").fetchone()
        return int(texts[0] + callbacks[0])


@contextmanager
def shown(run: Run) -> Iterator[None]:
    """In a terminal, a line on stderr that always has the current state."""
    STDERR.print(f"seed {run.seed}; to repeat this schedule: {run.command}")
    with Live(run, console=STDERR, refresh_per_second=4, transient=True) if STDERR.is_terminal else nullcontext():
        yield


def show_account(run: Run) -> None:
    console = make_console()
    console.print("\nfaults: " + ", ".join(f"{count} {name}" for name, count in sorted(run.injected.items())))
    console.print("clients: " + ", ".join(f"{count} {name}" for name, count in run.log.counts().items()) + "\n")
    for name, count in run.account.counts.items():
        console.print(f"{name:<31} {count:7,}")
    totals = run.account.totals.items()
    console.print("\n" + "   ".join(f"[{'red' if count else 'green'}]{kind} {count}[/]" for kind, count in totals))
    left_out = (f"  {fault}: {reason}" for fault, reason in LEFT_OUT.items())
    console.print(
        "\n[dim]Left out, because the system does not promise to survive it (docs/guarantees.md, What remains):[/]"
    )
    console.print("[dim]" + "\n".join(left_out) + "[/]")


def explain(world: World, run: Run) -> str:
    """The first findings, the trace of one event, and where the logs are."""
    lines = [f"{finding.kind}: {finding.what} {finding.event_id}" for finding in run.account.findings[:20]]
    about = next((finding.event_id for finding in run.account.findings if finding.event_id), None)
    if about:
        try:
            lines += ["", str(journey(world.settings, about))]
        except FernError as error:
            lines += ["", f"There is no trace of {about}: {error.message}"]
    kept = tempfile.mkdtemp(prefix="fern-chaos-")
    shutil.copytree(world.settings.logs, kept, dirs_exist_ok=True)
    return "\n".join((*lines, "", f"logs: {kept}"))


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(5, 3600), default=120, show_default=True, help="How long faults are injected."
)
@click.option("--seed", type=click.IntRange(0), help="Repeat a schedule. Without it, a seed is drawn and printed.")
@json_option
def main(seconds: float, seed: int | None, as_json: bool) -> None:
    """Inject faults under load, from a seed, and account for every message.

    Exit code 20 if anything was lost, duplicated, out of order or unexplained.
    """
    configure("chaos", "CRITICAL")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C, so that every process is stopped
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # gRPC would warn on stderr about each process that we start
    run = Run(random.randrange(10_000) if seed is None else seed, seconds)
    details = ""
    with shown(run), replicated_world() as (world, server):
        asyncio.run(inject_faults_under_load(world, server, run))
        if any(run.account.totals.values()):
            details = explain(world, run)
    if as_json:
        print_json(run.to_json())
    else:
        show_account(run)
    if details:
        found = ", ".join(f"{count} {kind}" for kind, count in run.account.totals.items() if count)
        raise NotClean(f"seed {run.seed} broke a guarantee: {found}.", command=run.command, details=details)


if __name__ == "__main__":
    main(prog_name="fern chaos")
