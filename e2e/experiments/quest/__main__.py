"""`fern quest`: compare six designs, from naive to ours, under the same faults; `fern quest sms`: the sending of texts alone;
`fern quest deltas`: the counting of contractions; `fern quest consent`: who is texted without consent; `fern quest risks`: what
designs lose or repeat in a month.

Exit code 1 if our design lost, duplicated or invented a text, or if `--check` finds other numbers in the documentation; 2 for
invalid options.
"""

import sys
from collections.abc import Sequence
from contextlib import suppress
from difflib import get_close_matches
from pathlib import Path

import click

from e2e.experiments import documentation
from e2e.experiments.quest.chart import svg
from e2e.experiments.quest.consents import main as consent
from e2e.experiments.quest.deltas.command import main as deltas
from e2e.experiments.quest.designs import DESIGNS
from e2e.experiments.quest.environment import MOST_LABOURS
from e2e.experiments.quest.faults import FAULTS, RATE
from e2e.experiments.quest.report import RIGHT, STYLES, QuestReport, schedule, section, show
from e2e.experiments.quest.risks import main as risks
from e2e.experiments.quest.runner import compare
from e2e.experiments.quest.sms import main as sms
from fern.errors import FernError
from fern.output import Group, json_option, print_json
from servicekit.logs import configure

LABOURS, SEED = 100, 1

PAGE, CHART = documentation.DOCS / "quest.md", documentation.DOCS / "images" / "quest.svg"


class BadRate(FernError):
    exit_code = 2


def pages(report: QuestReport) -> dict[Path, str]:
    """What the page and the chart must contain after this run."""
    return {
        PAGE: documentation.with_section(PAGE, section(report), "fern quest"),
        CHART: svg(report.counts, STYLES, RIGHT),
    }


def read_rates(wanted: Sequence[str]) -> dict[str, float]:
    rates = dict[str, float]()
    for one in wanted:
        name, _, value = one.partition("=")
        [near] = get_close_matches(name, FAULTS, n=1) or ["reply-lost"]
        with suppress(ValueError):
            rates[name] = float(value)
        if not 0 <= rates.get(name, -1) <= 1:
            raise BadRate(f"--rate {one}: a rate is a number from 0 to 1.", command=f"fern quest --rate {near}=0.5")
        if name not in FAULTS:
            what = f"--rate {one}: there is no fault {name!r}; `fern quest --list` shows all of them."
            raise BadRate(what, command=f"fern quest --rate {near}={value}")
    return rates


@click.group("quest", cls=Group, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--labours", type=click.IntRange(1, MOST_LABOURS), default=LABOURS, show_default=True, help="Number of labours."
)
@click.option(
    "--seed", type=click.IntRange(0), default=SEED, show_default=True, help="Decides which faults hit which labour."
)
@click.option(
    "--rate", "wanted", multiple=True, metavar="NAME=P", help=f"The probability of a fault ({RATE:g}). Repeatable."
)
@click.option("--list", "listing", is_flag=True, help="List the faults, and run nothing.")
@click.option(
    "--docs/--no-docs", default=None, help="Write docs/quest.md and its chart [default: only with default options]."
)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the documentation has other numbers.")
@json_option
@click.pass_context
def quest(
    context: click.Context,
    labours: int,
    seed: int,
    wanted: tuple[str, ...],
    listing: bool,
    docs: bool | None,
    check: bool,
    as_json: bool,
) -> None:
    """Compare six designs, from naive to ours, under the same faults: who gets one text, two, none, or a false one?"""
    if context.invoked_subcommand:
        return
    if listing:
        list_faults(as_json)
        return
    rates = read_rates(wanted)
    configure("quest", "CRITICAL")
    report = QuestReport.of(seed, rates, labours, compare(schedule(seed, labours, rates), DESIGNS))
    if as_json:
        print_json(report.to_json())
    else:
        show(report)
    if report.broken:
        click.echo(f"our design broke its promise: {', '.join(report.broken)}", err=True)
        sys.exit(1)
    if check:
        documentation.check(pages(report), "fern quest")
    elif docs or (docs is None and (labours, seed, rates) == (LABOURS, SEED, {})):
        documentation.write(pages(report))


def list_faults(as_json: bool) -> None:
    listed = [{"name": name, "rate": RATE, "meaning": meaning} for name, meaning in FAULTS.items()]
    if as_json:
        print_json(listed)
    else:
        click.echo("\n".join("{name:<21} {rate}  {meaning}".format(**one) for one in listed))


quest.add_command(sms)
quest.add_command(risks)
quest.add_command(deltas)
quest.add_command(consent)

if __name__ == "__main__":
    quest(prog_name="fern quest")
