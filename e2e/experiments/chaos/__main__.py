"""`fern chaos`: run labours while faults are injected, from a seed; then account for every event and every text.

It starts its own system, with its own PostgreSQL, bus and SMS sandbox, and never touches one that is running already. Exit code
20 if anything was lost, duplicated, out of order or unexplained; then it prints the trace of one such event.
"""

import asyncio
import os
import random
import shutil
import signal
import sys
import tempfile
from dataclasses import replace

import click

from e2e.experiments.chaos.environment import chaos_world
from e2e.experiments.chaos.output import own_lines_only
from e2e.experiments.chaos.recovery import table, write_docs
from e2e.experiments.chaos.run import Run, inject_faults_under_load, shown
from e2e.experiments.chaos.schedule import KINDS, PROFILES, FaultKind
from e2e.support.world import World
from fern.errors import FernError, NotClean
from fern.output import json_option, make_console, print_json
from fern.trace import journey
from servicekit.logs import configure

ROUNDS = 3  # faults of each kind, if recovery is measured


def show_account(run: Run) -> None:
    console = make_console()
    console.print("\nfaults: " + ", ".join(f"{count} {name}" for name, count in sorted(run.injected.items())))
    console.print("clients: " + ", ".join(f"{count} {name}" for name, count in run.log.counts().items()) + "\n")
    for name, count in run.account.counts.items():
        console.print(f"{name:<31} {count:7,}")
    if run.recoveries:
        console.print("\nrecovered, in seconds after the end of the fault:\n\n" + table(run.recoveries))
    totals = run.account.totals.items()
    console.print("\n" + "   ".join(f"[{'red' if count else 'green'}]{kind} {count}[/]" for kind, count in totals))
    left_out = (f"  {fault}: {reason}" for fault, reason in run.left_out.items())
    console.print("\n[dim]Left out (docs/guarantees.md, What remains):[/]")
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
    "--profile",
    type=click.Choice([*PROFILES]),
    default="default",
    show_default=True,
    help="Duration and size of the faults.",
)
@click.option(
    "--seconds", type=click.FloatRange(5, 36_000), help="How long faults are injected; else as the profile says."
)
@click.option("--seed", type=click.IntRange(0), help="Repeat a schedule. Without it, a seed is drawn and printed.")
@click.option("--only", multiple=True, type=click.Choice(KINDS), help="Inject only this kind of fault. Repeatable.")
@click.option(
    "--recovery", is_flag=True, help="One fault at a time; measure how soon the system has recovered from each."
)
@click.option(
    "--rounds",
    type=click.IntRange(1, 100),
    default=ROUNDS,
    show_default=True,
    help="With --recovery: faults of each kind.",
)
@click.option("--write-docs", "write", is_flag=True, help="With --recovery: write the table into docs/guarantees.md.")
@json_option
def main(
    profile: str,
    seconds: float | None,
    seed: int | None,
    only: tuple[FaultKind, ...],
    recovery: bool,
    rounds: int,
    write: bool,
    as_json: bool,
) -> None:
    """Inject faults under load, from a seed, and account for every message.

    The profiles: `ci` is what `make test` runs (20 s), `default` takes two minutes, and `night` an hour with larger bursts.
    Exit code 20 if anything was lost, duplicated, out of order or unexplained.
    """
    configure("chaos", "CRITICAL")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # like Ctrl-C, so that every process is stopped
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"  # gRPC would warn on stderr about each process that we start
    seed = random.randrange(10_000) if seed is None else seed
    command = ["fern chaos"]
    if profile != "default":
        command.append(f"--profile {profile}")
    if seconds is not None:
        command.append(f"--seconds {seconds:g}")
    if recovery:
        command.append(f"--recovery --rounds {rounds}")
    command += [f"--only {kind}" for kind in only]
    chosen = PROFILES[profile] if seconds is None else replace(PROFILES[profile], seconds=seconds)
    run = Run(" ".join([*command, f"--seed {seed}"]), seed, chosen, only or KINDS, rounds if recovery else 0)
    details = ""
    with own_lines_only() as console, shown(run, console), chaos_world() as chaos:
        asyncio.run(inject_faults_under_load(chaos, run, console))
        if any(run.account.totals.values()):
            details = explain(chaos.world, run)
    if as_json:
        print_json(run.to_json())
    else:
        show_account(run)
    if write:
        write_docs(run.recoveries, run.command)
    if details:
        found = ", ".join(f"{count} {kind}" for kind, count in run.account.totals.items() if count)
        raise NotClean(f"seed {run.seed} broke a guarantee: {found}.", command=run.command, details=details)


if __name__ == "__main__":
    main(prog_name="fern chaos")
