"""A run: the load, the faults, the wait until it is quiet, and the account."""

import asyncio
import itertools
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager, nullcontext
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Console
from rich.live import Live

from e2e.experiments.chaos.accounting import ChaosAccount, take_account
from e2e.experiments.chaos.environment import ChaosWorld
from e2e.experiments.chaos.fault_injector import FaultInjector
from e2e.experiments.chaos.load_generator import WRITERS, ClientLog, generate_load
from e2e.experiments.chaos.recovery import Recovery, measure
from e2e.experiments.chaos.schedule import LEFT_OUT, FaultKind, Profile, ScheduledFault, one_at_a_time, schedule
from e2e.support.bus_tap import BusTap
from e2e.support.world import World
from labour.domain.statistics import TOPICS as FOR_STATISTICS
from messaging.database import is_transient
from notification.domain.reactions import TOPICS as FOR_NOTIFICATION

QUIET_WITHIN = 180.0  # seconds after the last fault in which every event must be processed
QUIET_FOR = 2.0  # seconds without a change, after which the system counts as quiet
PRINT_EVERY = 20  # looks at the counts
NO_DISK = {"a full disk": "this machine does not let us mount a file system; it takes root on Linux"}


@dataclass(slots=True)
class Run:
    """The state of a run, during it and afterwards. `rounds` is 0 unless each kind of fault is measured alone."""

    command: str
    seed: int
    profile: Profile
    kinds: tuple[FaultKind, ...]
    rounds: int = 0
    phase: str = "starting"
    began: float = field(default_factory=time.monotonic)
    log: ClientLog = field(default_factory=ClientLog)
    actions: list[ScheduledFault] = field(default_factory=list)
    active: set[str] = field(default_factory=set)  # the faults of this moment
    injected: dict[str, int] = field(default_factory=dict)
    recoveries: list[Recovery] = field(default_factory=list)
    committed: int = 0
    texts: int = 0
    unfinished: int = 0
    observed: float = 0.0  # when the observation began that found these
    left_out: dict[str, str] = field(default_factory=lambda: dict(LEFT_OUT))
    account: ChaosAccount = field(default_factory=ChaosAccount)

    def enter(self, phase: str) -> None:
        self.phase, self.began = phase, time.monotonic()

    def __rich__(self) -> str:
        of = f" of {self.profile.seconds:g}" if self.phase == "injecting faults" else ""
        line = f"[bold]{self.phase}[/] {time.monotonic() - self.began:.0f}{of} s"
        if self.actions:
            line += f" · {self.log.labours} labours · {self.committed} events · {self.texts} texts"
            line += f" · {self.unfinished} unfinished"
        return line + "".join(f" · [red]{fault}[/]" for fault in sorted(self.active))

    def to_json(self) -> dict[str, Any]:
        return {
            "seed": self.seed,
            "seconds": self.profile.seconds,
            "repeat": self.command,
            "schedule": [asdict(action) for action in self.actions],
            "injected": self.injected,
            "recoveries": [asdict(recovery) for recovery in self.recoveries],
            "clients": self.log.counts(),
            "account": self.account.counts,
            **{kind.replace("-", "_"): count for kind, count in self.account.totals.items()},
            "findings": [asdict(finding) for finding in self.account.findings],
            "left_out": self.left_out,
        }


async def inject_faults_under_load(chaos: ChaosWorld, run: Run, console: Console) -> None:
    world, tap, stop = chaos.world, BusTap(chaos.world), asyncio.Event()
    if chaos.disk is None:
        run.left_out |= NO_DISK
        run.kinds = tuple(kind for kind in run.kinds if kind != "full-disk")
    if run.rounds:
        run.actions = one_at_a_time(run.seed, run.rounds, world.started, run.kinds)
    else:
        run.actions = schedule(run.seed, run.profile, world.started, run.kinds)
    injector = FaultInjector(chaos, run.log, run.seed, run.active)
    run.enter("measuring recovery" if run.rounds else "injecting faults")
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(injector.supervise()), tasks.create_task(_observe(world, run, console))]
        writers = WRITERS // 2 if run.rounds else WRITERS
        load = tasks.create_task(generate_load(world.labour_apis, run.log, run.seed, stop, writers))
        if run.rounds:
            async for recovery in measure(chaos, injector, run.actions):
                run.recoveries.append(recovery)
        else:
            await injector.run(run.actions, run.profile.seconds)
        await injector.close()
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
    run.account.add(injector.died)
    run.account.add(
        f"{one.what}: no recovery within {one.seconds:.0f} s." for one in run.recoveries if not one.recovered
    )


async def _observe(world: World, run: Run, console: Console) -> None:
    """Keep the counts of the run up to date. Without a terminal, print them every few seconds."""
    for look in itertools.count():
        began = time.monotonic()
        try:
            run.committed, run.texts, run.unfinished = await asyncio.to_thread(progress_of, world)
            run.observed = began
        except Exception as error:
            if not (is_transient(error) or isinstance(error, sqlite3.Error)):  # the databases have faults, too
                raise
        if look % PRINT_EVERY == 0 and not console.is_terminal:
            console.print(run, soft_wrap=True)
        await asyncio.sleep(0.5)


async def _until_quiet(run: Run) -> None:
    """Wait until nothing changes any more, at most `QUIET_WITHIN`. The account names what has not arrived then."""
    deadline, quiet_since, last = time.monotonic() + QUIET_WITHIN, time.monotonic(), -1
    while time.monotonic() < deadline and run.observed - quiet_since < QUIET_FOR:
        if run.unfinished or run.committed != last:
            quiet_since, last = time.monotonic(), run.committed
        await asyncio.sleep(0.2)


def progress_of(world: World) -> tuple[int, int, int]:
    """How many events are committed, how many messages are settled, and how many steps are still to come."""
    committed = world.count("labour", "outbox") + world.count("notification", "outbox")
    texts = world.count("notification", "notification WHERE state NOT IN ('PENDING', 'SENDING', 'IN_DOUBT')")
    unsettled = world.count("notification", "notification") - texts
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
def shown(run: Run, console: Console) -> Iterator[None]:
    """Show the run. In a terminal, a line always has the current state."""
    console.print(f"seed {run.seed}; to repeat this schedule: {run.command}", soft_wrap=True)
    with Live(run, console=console, refresh_per_second=4, transient=True) if console.is_terminal else nullcontext():
        yield
