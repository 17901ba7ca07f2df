"""`fern bench`: measure every stage side by side with the articles' designs and with the limits of this machine.

Exit codes: 1 any other failure; 2 invalid options; 23 the machine was too busy or unsteady to compare; 24 a design did not do
the work that it was measured for.
"""

import json
import time
from collections.abc import Sequence
from difflib import get_close_matches
from pathlib import Path

import click

from e2e.experiments.bench import documentation
from e2e.experiments.bench import profile as profiles
from e2e.experiments.bench.calibration import calibrate, doubts
from e2e.experiments.bench.environment import new_environment
from e2e.experiments.bench.report import BenchReport, show
from e2e.experiments.bench.runner import run
from e2e.experiments.bench.stage import Options, Stage
from e2e.experiments.bench.stages import STAGES
from e2e.experiments.bench.stages.growth import FULL
from fern.errors import FernError
from fern.output import print_json


class BadOptions(FernError):
    exit_code = 2


class Unreliable(FernError):
    exit_code = 23


def find(names: tuple[str, ...]) -> list[Stage]:
    """The stages of these names, in their usual order; all of them without a name."""
    known = {stage.name: stage for stage in STAGES}
    for name in names:
        if name not in known:
            [near] = get_close_matches(name, known, n=1, cutoff=0) or ["relay"]
            what = f"there is no stage {name!r}; there are {', '.join(known)}."
            raise BadOptions(what, command=f"fern bench --only {near}")
    return [stage for stage in STAGES if not names or stage.name in names]


def refuse(doubts: Sequence[str], anyway: bool, only: Sequence[str]) -> None:
    """Raises `Unreliable` if the machine does not allow a comparison, unless ratios are wanted anyway."""
    if doubts and not anyway:
        what = f"this machine was too busy or unsteady, so no ratios are given: {'; '.join(doubts)}."
        raise Unreliable(what, command=" ".join(["fern bench --anyway", *(f"--only {name}" for name in only)]))


def say(line: str) -> None:
    click.echo(f"{time.strftime('%H:%M:%S')}  {line}", err=True)


@click.command("bench", context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--only", multiple=True, metavar="STAGE", help="Measure this stage only. Repeatable.")
@click.option("--rounds", type=click.IntRange(1, 100), default=5, show_default=True, help="Rounds of each stage.")
@click.option(
    "--scale", type=click.FloatRange(0.01, 100), default=1.0, show_default=True, help="Share of the usual work."
)
@click.option("--full", is_flag=True, help="Fill the tables of `growth` with 10 million rows.")
@click.option(
    "--seconds",
    type=click.FloatRange(1, 86_400),
    default=60.0,
    show_default=True,
    help="Seconds of the light load in `memory`.",
)
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON; - is standard output.")
@click.option(
    "--write-docs", is_flag=True, help="Write the table and the chart into docs/performance.md. All stages only."
)
@click.option("--profile", metavar="STAGE", help="Show where our side of a stage spends its time; compare nothing.")
@click.option("--anyway", is_flag=True, help="Print ratios even if the machine is too busy, marked as unreliable.")
@click.option("--list", "listing", is_flag=True, help="List the stages and their cases, and run nothing.")
def bench(
    only: tuple[str, ...],
    rounds: int,
    scale: float,
    full: bool,
    seconds: float,
    json_file: str | None,
    write_docs: bool,
    profile: str | None,
    anyway: bool,
    listing: bool,
) -> None:
    """Measure every stage: the articles' design, ours, and the limit of this machine, as ratios with their spread."""
    stages = find((profile,) if profile else only)
    if write_docs and len(stages) < len(STAGES):
        what = "--write-docs writes the table of all stages, so it takes neither --only nor --profile."
        raise BadOptions(what, command="fern bench --write-docs")
    if profile and not stages[0].profiled:
        usable = ", ".join(stage.name for stage in STAGES if stage.profiled)
        raise BadOptions(f"--profile takes one of {usable}.", command="fern bench --profile relay")
    if listing:
        for stage in stages:
            click.echo(f"{stage.name:<16} {stage.title}: {'; '.join(case.title for case in stage.cases.values())}")
        return
    options = Options(rounds=rounds, scale=scale, rows=FULL if full else {}, seconds=seconds)
    if profile:
        with new_environment() as environment:
            found = profiles.profile(environment, stages[0], options, say)
        profiles.show(stages[0].title, found)
        return
    say("calibrating")
    before = calibrate()
    with new_environment() as environment:
        [[version]] = environment.sql(environment.server.dsn(), "SELECT current_setting('server_version')")
        figures = run(environment, stages, options, say)
    after = calibrate()
    report = BenchReport(figures, before, after, doubts(before, after), version, options)
    refuse(report.doubts, anyway, only)
    if json_file:
        if json_file == "-":
            print_json(report.to_json())
        else:
            Path(json_file).write_text(json.dumps(report.to_json(), indent=2))
    if json_file != "-":
        show(report)
    if write_docs:
        documentation.write(report)
    for doubt in report.doubts:
        click.echo(f"unreliable: {doubt}", err=True)


if __name__ == "__main__":
    bench(prog_name="fern bench")
