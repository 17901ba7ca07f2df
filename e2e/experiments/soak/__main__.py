"""`fern soak`: a steady load for minutes or hours, and whether anything grows.

It starts its own system, as `fern chaos` does. Exit code 28 if something grows; 20 if the audit afterwards is not clean.
"""

import asyncio
import os
import random
import signal
import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import click

from e2e.experiments.chaos.environment import ChaosWorld, chaos_world
from e2e.experiments.chaos.fault_injector import FaultInjector
from e2e.experiments.chaos.load_generator import ClientLog, generate_load
from e2e.experiments.chaos.output import own_lines_only
from e2e.experiments.chaos.run import progress_of
from e2e.experiments.chaos.schedule import OUTAGES, PROFILES, FaultKind, schedule
from e2e.experiments.soak.chart import svg
from e2e.experiments.soak.growth import MEASURES, Verdict, judge
from e2e.experiments.soak.sampler import Sampler
from fern.audit.auditor import AuditReport, audit
from fern.errors import FernError, NotClean
from fern.output import json_option, make_console, print_json
from fern.settings import PROJECT_ROOT
from messaging.database import is_transient
from servicekit.logs import configure

WRITERS = 2  # about 20 events a second on two busy cores
SAMPLES = 240  # of a run, at intervals of 0.5 to 10 seconds
# Neither a restart of a process, after which a leak would begin again at zero, nor poison, which stays on the bus by design.
FAULTS: tuple[FaultKind, ...] = (*OUTAGES, "freeze", "database", "cut", "bus", "sms")
PAUSES = 10.0  # times as long as in a chaos run: most of the time there is no fault
QUIET_WITHIN = 300.0  # seconds
PAGE, CHART = PROJECT_ROOT / "docs" / "performance.md", PROJECT_ROOT / "docs" / "images" / "soak.svg"
BEGIN, END = "<!-- begin: written by `fern soak --write-docs` -->", "<!-- end: soak -->"


class Grows(FernError):
    exit_code = 28


async def run(
    chaos: ChaosWorld, minutes: float, seed: int, faults: bool
) -> tuple[Sampler, AuditReport, dict[str, int]]:
    seconds, stop, log = minutes * 60, asyncio.Event(), ClientLog()
    sampler = Sampler(chaos, min(max(seconds / SAMPLES, 0.5), 10.0))
    injector = FaultInjector(chaos, log, seed, set())
    kinds = [kind for kind in FAULTS if kind != "full-disk" or chaos.disk]
    profile = replace(PROFILES["night"], seconds=seconds, pauses=PAUSES)
    actions = schedule(seed, profile, chaos.world.started, kinds) if faults else []
    async with asyncio.TaskGroup() as tasks:
        background = [tasks.create_task(sampler.observe()), tasks.create_task(injector.supervise())]
        load = tasks.create_task(generate_load(chaos.world.labour_apis, log, seed, stop, WRITERS))
        await injector.run(actions, seconds)
        await injector.close()
        background[0].cancel()
        stop.set()
        await load
        await _until_quiet(chaos)
        background[1].cancel()
    url = chaos.world.settings.url
    report = await audit(chaos.world.urls, sandbox=url("sms-sandbox"), bus=url("pubsub-http"), overdue_seconds=0)
    for what in injector.died:
        report.add("unexplained", "", "processes", what)
    return sampler, report, dict(injector.injected)


async def _until_quiet(chaos: ChaosWorld) -> None:
    deadline = time.monotonic() + QUIET_WITHIN
    while time.monotonic() < deadline:
        try:
            if not (await asyncio.to_thread(progress_of, chaos.world))[2]:
                return
        except Exception as error:
            if not is_transient(error):
                raise
        await asyncio.sleep(0.5)


def table(verdicts: Sequence[Verdict]) -> str:
    """A Markdown table: for each measure, the process that has changed most."""
    lines = ["| measure | unit | first third | last third | grows |", "|---|---|---:|---:|---|"]
    for name, measure in MEASURES.items():
        if found := [one for one in verdicts if one.series.partition("/")[0] == name]:
            worst = max(found, key=lambda one: (one.grows, one.last - one.first))
            process = worst.series.partition("/")[2]
            title = f"{measure.title}, `{process}`" if process else measure.title
            numbers = (
                f"{worst.first:,.2f} | {worst.last:,.2f}"
                if worst.last < 10
                else f"{worst.first:,.0f} | {worst.last:,.0f}"
            )
            lines.append(f"| {title} | {measure.unit} | {numbers} | {_answer(worst)} |")
    return "\n".join(lines)


def _answer(verdict: Verdict) -> str:
    if not verdict.comparable:
        return "not compared: the machine was busier"
    return "**yes**" if verdict.grows else "no"


def summary(command: str, sampler: Sampler, injected: dict[str, int], verdicts: Sequence[Verdict]) -> str:
    memory = sum(one.last for one in verdicts if one.series.startswith("memory/"))
    faults = ", ".join(f"{count} {name}" for name, count in sorted(injected.items())) or "none"
    return f"{sampler.events:,} events, {memory:,.0f} MB in all processes together. Faults: {faults}."


@click.command()
@click.option("--minutes", type=click.FloatRange(0.1, 10_000), default=10, show_default=True, help="Minutes of load.")
@click.option("--seed", type=click.IntRange(0), help="Repeat a schedule of faults. Without it, a seed is drawn.")
@click.option("--faults/--no-faults", default=True, show_default=True, help="Inject faults that restart no process.")
@click.option("--svg", "chart", type=click.Path(dir_okay=False, path_type=Path), help="Write the chart to this file.")
@click.option("--write-docs", "write", is_flag=True, help="Write table and chart into docs/performance.md.")
@json_option
def main(minutes: float, seed: int | None, faults: bool, chart: Path | None, write: bool, as_json: bool) -> None:
    """Run a steady load, sample what the system uses, and say whether anything grows.

    Compares the last third of the run with the first: memory, file descriptors, connections, disk use and latency.
    Exit code 28 if something grows, 20 if the audit at the end is not clean.
    """
    configure("soak", "CRITICAL")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    seed = random.randrange(10_000) if seed is None else seed
    command = f"fern soak --minutes {minutes:g} --seed {seed}" + ("" if faults else " --no-faults")
    with own_lines_only() as console, chaos_world(fsync=True) as chaos:
        console.print(f"{minutes:g} minutes; to repeat: {command}")
        sampler, audited, injected = asyncio.run(run(chaos, minutes, seed, faults))
    verdicts = judge(sampler.samples)
    growing = [one for one in verdicts if one.grows]
    if as_json:
        print_json(_to_json(command, sampler, audited, injected, verdicts))
    else:
        output = make_console()
        output.print("\n" + table(verdicts) + "\n\n" + summary(command, sampler, injected, verdicts))
        output.print(_conclusion(verdicts))
    if chart:
        chart.write_text(svg(sampler.times, sampler.samples))
    if write:
        _write_docs(command, sampler, injected, verdicts)
    if not audited.clean:
        found = ", ".join(f"{count} {kind}" for kind, count in audited.totals.items())
        details = "\n".join(finding.what for finding in audited.findings[:10])
        raise NotClean(f"the audit is not clean: {found}.", command=command, details=details)
    if growing:
        what = ", ".join(f"{one.measure.title} ({one.series}): {one.first:.1f} → {one.last:.1f}" for one in growing)
        raise Grows(f"something grows: {what}.", command=command)


def _conclusion(verdicts: Sequence[Verdict]) -> str:
    if not verdicts:
        return "The run was too short to say whether anything grows."
    return "Something grows." if any(one.grows for one in verdicts) else "Nothing grows."


def _to_json(
    command: str, sampler: Sampler, audited: AuditReport, injected: dict[str, int], verdicts: Sequence[Verdict]
) -> dict[str, Any]:
    return {
        "repeat": command,
        "events": sampler.events,
        "injected": injected,
        "clean": audited.clean,
        "findings": [asdict(finding) for finding in audited.findings],
        "verdicts": [asdict(verdict) for verdict in verdicts],
        "samples": [{"at": at, **sample} for at, sample in zip(sampler.times, sampler.samples, strict=True)],
    }


def _write_docs(command: str, sampler: Sampler, injected: dict[str, int], verdicts: Sequence[Verdict]) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    picture = "![What the system used during the run](images/soak.svg)"
    parts = [f"```sh\n{command}\n```", table(verdicts), summary(command, sampler, injected, verdicts), picture]
    PAGE.write_text(f"{before}{BEGIN}\n\n" + "\n\n".join(parts) + f"\n\n{END}{after}")
    CHART.write_text(svg(sampler.times, sampler.samples))


if __name__ == "__main__":
    main(prog_name="fern soak")
