"""`fern status`."""

import json
import sys
from dataclasses import asdict

import click
from rich.table import Table

from fern.errors import NeverHealthy, NotRunning
from fern.runtime.progress import make_console
from fern.runtime.system import Row, processes_now
from fern.settings import Settings


@click.command()
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def status(as_json: bool) -> None:
    """Show every process: state, pid, uptime, restarts, health.

    Exit code 0 if all are healthy, 15 if one is not, 19 if nothing runs.
    """
    settings = Settings.load()
    rows = processes_now(settings)
    if as_json:
        click.echo(json.dumps({"mode": settings.mode, "items": [asdict(row) for row in rows]}, indent=2))
    elif rows:
        _print_rows(rows)
    if not rows:
        if not as_json:
            click.echo("nothing is running; start it: make up")
        sys.exit(NotRunning.exit_code)
    sys.exit(0 if all(row.health == "healthy" for row in rows) else NeverHealthy.exit_code)


def _print_rows(rows: list[Row]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("process", "state", "pid", "uptime", "restarts", "health"):
        table.add_column(
            column, no_wrap=column != "health", justify="right" if column in ("pid", "uptime", "restarts") else "left"
        )
    for row in rows:
        colour = "green" if row.health == "healthy" else "red"
        uptime = "" if row.uptime_seconds is None else _duration(row.uptime_seconds)
        pid, restarts = ("" if number is None else str(number) for number in (row.pid, row.restarts))
        table.add_row(row.process, row.state, pid, uptime, restarts, f"[{colour}]{row.health}[/]")
    make_console().print(table)


def _duration(seconds: int) -> str:
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{seconds:02}"
