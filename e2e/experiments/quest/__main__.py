"""`fern quest`: six designs, from naive to ours, against the same misfortunes; and `fern quest sms`, about the last hurdle alone.

Exit code 1 if our design lost, doubled or invented anything, or if `--check` finds that the documentation says something else;
2 for options that make no sense.
"""

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from difflib import get_close_matches
from pathlib import Path

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from e2e.experiments.quest.pipelines import DESIGNS
from e2e.experiments.quest.race import Fate, race
from e2e.experiments.quest.report import Report, schedule, section, shown, svg
from e2e.experiments.quest.schedule import MISFORTUNES, RATE
from e2e.experiments.quest.sms import main as sms
from e2e.support.databases import migrate
from fern.errors import FernError
from fern.runtime.postgres import SERVICES, ensure_service_databases, temporary_server
from fern.runtime.progress import make_console
from fern.settings import PROJECT_ROOT
from servicekit.logs import configure

LABOURS, SEED = 100, 1
MOST = 900  # there are only so many phone numbers that belong to nobody

PAGE, CHART = PROJECT_ROOT / "docs" / "quest.md", PROJECT_ROOT / "docs" / "images" / "quest.svg"
BEGIN, END = "<!-- begin: written by `fern quest` -->", "<!-- end -->"


class BadRate(FernError):
    exit_code = 2


def run(met: Sequence[frozenset[str]], progress: Callable[[str, int], None]) -> dict[str, list[Fate]]:
    """On a PostgreSQL of its own, which is gone afterwards."""
    with tempfile.TemporaryDirectory(prefix="fern-quest-") as directory, temporary_server(Path(directory)) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        for service in SERVICES:
            migrate(service, server.url(service, service))
        return asyncio.run(race(server, met, DESIGNS, progress))


@contextmanager
def watched(total: int) -> Iterator[Callable[[str, int], None]]:
    """A bar for each design; where nobody watches, a line when it is through."""
    news, began = Console(stderr=True, highlight=False), time.monotonic()
    columns = (TextColumn("{task.description:<22}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=news, disable=not news.is_terminal) as bars:
        tasks = {design.name: bars.add_task(design.name, total=total, start=False) for design in DESIGNS}

        def progress(name: str, settled: int) -> None:
            if not bars.tasks[tasks[name]].started:
                bars.start_task(tasks[name])
            bars.update(tasks[name], completed=settled)
            if settled == total and not news.is_terminal:
                news.print(f"[green]✓[/] {name:<22} [dim]{time.monotonic() - began:5.1f} s[/]")

        yield progress


def pages(report: Report) -> dict[Path, str]:
    """The page and the chart as they should be after this run."""
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    return {PAGE: f"{before}{BEGIN}\n\n{section(report)}\n\n{END}{after}", CHART: svg(report.counts)}


def read_rates(wanted: Sequence[str]) -> dict[str, float]:
    rates = dict[str, float]()
    for one in wanted:
        name, _, value = one.partition("=")
        [near] = get_close_matches(name, MISFORTUNES, n=1) or ["reply-lost"]
        with suppress(ValueError):
            rates[name] = float(value)
        if not 0 <= rates.get(name, -1) <= 1:
            raise BadRate(f"--rate {one}: a rate is a number from 0 to 1.", command=f"fern quest --rate {near}=0.5")
        if name not in MISFORTUNES:
            what = f"--rate {one}: there is no {name!r}; `fern quest --list` shows what there is."
            raise BadRate(what, command=f"fern quest --rate {near}={value}")
    return rates


@click.group("quest", invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--labours", type=click.IntRange(1, MOST), default=LABOURS, show_default=True, help="How many.")
@click.option(
    "--seed", type=click.IntRange(0), default=SEED, show_default=True, help="Decides which labour meets what."
)
@click.option(
    "--rate", "wanted", multiple=True, metavar="NAME=P", help=f"How likely something is ({RATE:g}). Repeatable."
)
@click.option("--list", "listing", is_flag=True, help="Show what can go wrong, and run nothing.")
@click.option(
    "--docs/--no-docs", default=None, help="Write docs/quest.md and its chart [default: only in a usual run]."
)
@click.option("--check", is_flag=True, help="Write nothing; exit code 1 if the docs say something else.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
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
    """Six designs, from naive to ours, against the same misfortunes: who is told once, twice, never, or of nothing?"""
    if context.invoked_subcommand:
        return
    if listing:
        list_misfortunes(as_json)
        return
    rates = read_rates(wanted)
    configure("quest", "CRITICAL")
    met = schedule(seed, labours, rates)
    with watched(len(met)) as progress:
        report = Report.of(seed, rates, labours, run(met, progress))
    if as_json:
        click.echo(json.dumps(report.to_json(), indent=2))
    else:
        make_console().print(shown(report))
    if report.broken:
        click.echo(f"our design broke its word: {', '.join(report.broken)}", err=True)
        sys.exit(1)
    if check:
        if any(not path.exists() or path.read_text() != text for path, text in pages(report).items()):
            raise FernError("docs/quest.md or its chart says something else than this run.", command="fern quest")
    elif docs or (docs is None and (labours, seed, rates) == (LABOURS, SEED, {})):
        for path, text in pages(report).items():
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)


def list_misfortunes(as_json: bool) -> None:
    listed = [{"name": name, "rate": RATE, "meaning": meaning} for name, meaning in MISFORTUNES.items()]
    if as_json:
        click.echo(json.dumps(listed, indent=2))
    else:
        click.echo("\n".join("{name:<21} {rate}  {meaning}".format(**one) for one in listed))


quest.add_command(sms)

if __name__ == "__main__":
    quest(prog_name="fern quest")
