"""`fern chaos`: a load of labours while everything breaks, from a seed; then an account of every message.

It runs in a world of its own, on a PostgreSQL, a bus and an SMS sandbox of its own: nothing of a running system is touched.
Exit code 20 if anything was lost, duplicated, out of order or unexplained; then it prints the journey of one such event.
"""

import asyncio
import json
import os
import random
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table

from e2e.experiments.chaos.accounting import Result, Tap, take_account
from e2e.experiments.chaos.fault_injector import Storm, a_private_world
from e2e.experiments.chaos.load_generator import Notebook, write
from e2e.experiments.chaos.schedule import LEFT_OUT, Action, schedule
from e2e.support.world import TAKEN, World
from fern.errors import FernError, NotClean
from fern.output import make_console
from fern.runtime.postgres import TemporaryServer
from fern.trace import journey
from messaging.database import is_transient
from servicekit.logs import configure

QUIET_WITHIN = 180.0  # seconds after the storm in which all must have arrived
QUIET_FOR = 2.0  # seconds without anything new
TELL_EVERY = 10.0  # seconds, where there is no terminal


@dataclass(slots=True)
class Run:
    """What is known of a run, while it goes on and afterwards."""

    seed: int
    seconds: float
    phase: str = "starting"
    began: float = field(default_factory=time.monotonic)
    book: Notebook = field(default_factory=Notebook)
    actions: list[Action] = field(default_factory=list)
    broken: set[str] = field(default_factory=set)  # right now
    done: dict[str, int] = field(default_factory=dict)
    committed: int = 0
    texts: int = 0
    waiting: int = 0
    result: Result = field(default_factory=Result)

    @property
    def command(self) -> str:
        return f"fern chaos --seconds {self.seconds:g} --seed {self.seed}"

    def enter(self, phase: str) -> None:
        self.phase, self.began = phase, time.monotonic()

    def __rich__(self) -> str:
        of = f" of {self.seconds:g}" if self.phase == "storm" else ""
        line = f"[bold]{self.phase}[/] {time.monotonic() - self.began:.0f}{of} s"
        if self.actions:
            line += f" · {self.book.labours} labours · {self.committed} events · {self.texts} texts"
            line += f" · {self.waiting} on the way"
        return line + "".join(f" · [red]{what}[/]" for what in sorted(self.broken))

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": self.seconds,
            "repeat": self.command,
            "schedule": [asdict(action) for action in self.actions],
            "done": self.done,
            "clients": self.book.counts(),
            "account": self.result.counts,
            **{kind.replace("-", "_"): count for kind, count in self.result.totals.items()},
            "findings": [asdict(finding) for finding in self.result.findings],
            "left_out": LEFT_OUT,
        }


async def break_everything(world: World, server: TemporaryServer, run: Run) -> None:
    tap, stop = Tap(world), asyncio.Event()
    run.actions = schedule(run.seed, run.seconds, world.running)
    storm = Storm(world, server, run.actions, run.broken)
    run.enter("storm")
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(storm.supervise()), tasks.create_task(_look(world, run))]
        writing = tasks.create_task(write(world.labour_apis, run.book, run.seed, stop))
        await storm.rage(run.seconds)
        run.done = dict(storm.did)
        run.enter("finishing")
        stop.set()
        await writing
        run.enter("waiting for quiet")
        await _until_quiet(run)
        for task in background:
            task.cancel()
    run.enter("accounting")
    run.result = await take_account(world, run.book, tap, storm.poison)
    run.result.add_deaths(storm.died)


async def _look(world: World, run: Run) -> None:
    while True:
        try:
            run.committed, run.texts, run.waiting = await asyncio.to_thread(on_the_way, world)
        except Exception as error:
            if not (is_transient(error) or isinstance(error, sqlite3.Error)):  # the databases break, too
                raise
        await asyncio.sleep(0.5)


async def _until_quiet(run: Run) -> None:
    """What is not here when we give up waiting, the account will name."""
    deadline, quiet_since, last = time.monotonic() + QUIET_WITHIN, time.monotonic(), -1
    while time.monotonic() < deadline and time.monotonic() - quiet_since < QUIET_FOR:
        if run.waiting or run.committed != last:
            quiet_since, last = time.monotonic(), run.committed
        await asyncio.sleep(0.2)


def on_the_way(world: World) -> tuple[int, int, int]:
    """Events that are committed, texts that are sent, and how much has still to arrive somewhere. By counting only."""
    committed = _count(world, "labour", "outbox") + _count(world, "notification", "outbox")
    texts = _count(world, "notification", "notification WHERE state IN ('SENT', 'DELIVERED', 'UNDELIVERED', 'FAILED')")
    unsettled = _count(world, "notification", "notification") - texts
    unpublished = sum(_count(world, service, "outbox WHERE published_at IS NULL") for service in world.urls)
    done = "processed_event WHERE status = 'COMPLETED'"
    for_notification = _count(world, "labour", "outbox WHERE topic = ANY($1)", TAKEN)
    unclaimed = for_notification - _count(world, "notification", done)
    unclaimed += _count(world, "notification", "outbox") - _count(world, "labour", done)
    return committed, texts, unsettled + unpublished + unclaimed + _with_the_provider(world)


def _count(world: World, service: str, rows: str, *arguments: Any) -> int:
    return int(world.sql(service, f"SELECT count(*) FROM {rows}", *arguments)[0][0])


def _with_the_provider(world: World) -> int:
    """Texts on their way to a phone, and callbacks that will cause events: only the sandbox's own file knows."""
    file = world.settings.home / "sms" / "sms.sqlite3"
    with closing(sqlite3.connect(f"file:{file}?mode=ro", uri=True)) as store:
        texts = store.execute("SELECT count(*) FROM message WHERE step_at IS NOT NULL").fetchone()
        callbacks = store.execute("SELECT count(*) FROM callback").fetchone()
        return int(texts[0] + callbacks[0])


@contextmanager
def shown(run: Run) -> Iterator[None]:
    """On stderr: a line that lives in a terminal; elsewhere one every few seconds."""
    console = Console(stderr=True, highlight=False)
    console.print(f"seed {run.seed}; the same schedule again: {run.command}")
    if console.is_terminal:
        with Live(run, console=console, refresh_per_second=4, transient=True):
            yield
        return
    over = threading.Event()

    def tell() -> None:
        while not over.wait(TELL_EVERY):
            console.print(run, soft_wrap=True)

    teller = threading.Thread(target=tell, daemon=True)
    teller.start()
    try:
        yield
    finally:
        over.set()
        teller.join()


def show_account(run: Run) -> None:
    console = make_console()
    counts, clients = run.result.counts, run.book.counts()
    console.print("\nbroken: " + ", ".join(f"{count} {what}" for what, count in sorted(run.done.items())))
    console.print("clients: " + ", ".join(f"{count} {what}" for what, count in clients.items()) + "\n")
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column(justify="right")
    for name, count in counts.items():
        table.add_row(name, f"{count:,}")
    console.print(table)
    console.print(
        "\n" + "   ".join(f"[{'red' if n else 'green'}]{kind} {n}[/]" for kind, n in run.result.totals.items())
    )
    left_out = (f"  {what}: {why}" for what, why in LEFT_OUT.items())
    console.print("\n[dim]Left out, since nobody promises to survive it (docs/guarantees.md, What remains):[/]")
    console.print("[dim]" + "\n".join(left_out) + "[/]")


def explain(world: World, run: Run) -> str:
    """Everything that is known of what broke the promise: findings, the journey of one event, and where the logs are."""
    lines = [f"{finding.kind}: {finding.what} {finding.event_id}" for finding in run.result.findings[:20]]
    about = next((finding.event_id for finding in run.result.findings if finding.event_id), None)
    if about:
        try:
            lines += ["", str(journey(world.settings, about))]
        except FernError as error:
            lines += ["", f"The journey of {about} cannot be told: {error.message}"]
    kept = tempfile.mkdtemp(prefix="fern-chaos-")
    shutil.copytree(world.settings.logs, kept, dirs_exist_ok=True)
    return "\n".join((*lines, "", f"logs: {kept}"))


@click.command()
@click.option(
    "--seconds", type=click.FloatRange(5, 3600), default=120, show_default=True, help="How long things break."
)
@click.option("--seed", type=click.IntRange(0), help="Repeats a schedule; without it one is drawn and printed.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def main(seconds: float, seed: int | None, as_json: bool) -> None:
    """Break everything under load, from a seed, and account for every message.

    Exit code 20 if anything was lost, duplicated, out of order or unexplained.
    """
    configure("chaos", "CRITICAL")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as Ctrl-C does: leave nothing running
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # what we start shares nothing with us; gRPC would say so on stderr
    run = Run(random.randrange(10_000) if seed is None else seed, seconds)
    why = ""
    with shown(run), a_private_world() as (world, server):
        asyncio.run(break_everything(world, server, run))
        if any(run.result.totals.values()):
            why = explain(world, run)
    if as_json:
        click.echo(json.dumps(run.to_json(), indent=2))
    else:
        show_account(run)
    if why:
        found = ", ".join(f"{count} {kind}" for kind, count in run.result.totals.items() if count)
        raise NotClean(f"with seed {run.seed} the promise is broken: {found}.", command=run.command, details=why)


if __name__ == "__main__":
    main(prog_name="fern chaos")
