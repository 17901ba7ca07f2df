"""`fern quest deltas`: the same counter in fifteen designs, one misfortune at a time, with about half of the labours hit by it.

Exit code 1 if our design counted wrong, or if `--check` finds other numbers in the documentation.
"""

import sys
from pathlib import Path

import click

from e2e.experiments import documentation
from e2e.experiments.quest.chart import svg
from e2e.experiments.quest.deltas import DESIGNS
from e2e.experiments.quest.deltas.misfortunes import draw_plans
from e2e.experiments.quest.deltas.report import RIGHT, STYLES, DeltasReport, section, show
from e2e.experiments.quest.deltas.runner import compare
from fern.output import json_option, print_json
from servicekit.logs import configure

LABOURS, SEED = 10, 1
COMMAND = "fern quest deltas"
PAGE, CHART = documentation.DOCS / "quest-deltas.md", documentation.DOCS / "images" / "quest-deltas.svg"


def pages(report: DeltasReport) -> dict[Path, str]:
    """What the page and the chart must contain after this run."""
    chart = svg(report.counts(), STYLES, RIGHT)
    return {PAGE: documentation.with_section(PAGE, section(report), COMMAND), CHART: chart}


@click.command("deltas")
@click.option(
    "--labours", type=click.IntRange(1, 100), default=LABOURS, show_default=True, help="Labours for each misfortune."
)
@click.option(
    "--seed", type=click.IntRange(0), default=SEED, show_default=True, help="Decides whom each misfortune hits."
)
@click.option(
    "--docs/--no-docs",
    default=None,
    help="Write docs/quest-deltas.md and its chart [default: only with default options].",
)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the documentation has other numbers.")
@json_option
def main(labours: int, seed: int, docs: bool | None, check: bool, as_json: bool) -> None:
    """Compare fifteen designs of a counter under the same misfortunes: which are right, too much, or too little?"""
    configure("quest", "CRITICAL")
    report = DeltasReport(seed, labours, compare(draw_plans(seed, labours), DESIGNS))
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    if report.broken:
        click.echo(f"our design counted wrong under: {', '.join(report.broken)}", err=True)
        sys.exit(1)
    if check:
        documentation.check(pages(report), COMMAND)
    elif docs or (docs is None and (labours, seed) == (LABOURS, SEED)):
        documentation.write(pages(report))
