"""`fern status`: every process of the local system."""

import sys
from dataclasses import asdict
from datetime import timedelta

import click

from fern.errors import NeverHealthy, NotRunning
from fern.output import json_option, print_json, print_table
from fern.runtime.system import ProcessStatus, processes_now
from fern.settings import Settings


@click.command()
@json_option
def status(as_json: bool) -> None:
    """Show every process: state, pid, uptime, restarts, health.

    Exit code 0 if all are healthy or not started on purpose, 15 if one is not, 19 if nothing runs.
    """
    settings = Settings.load()
    statuses = processes_now(settings)
    if as_json:
        print_json({"mode": settings.mode, "items": [asdict(status) for status in statuses]})
    else:
        columns = "process | state | pid | uptime | restarts | health"
        print_table(columns, map(_row, statuses), empty="nothing is running; start it: make up")
    if not statuses:
        sys.exit(NotRunning.exit_code)
    sys.exit(0 if all(status.is_fine for status in statuses) else NeverHealthy.exit_code)


def _row(status: ProcessStatus) -> tuple[object, ...]:
    colour = "green" if status.is_fine else "red"
    uptime = None if status.uptime_seconds is None else timedelta(seconds=status.uptime_seconds)
    health = f"[{colour}]{status.health}[/]"
    return status.process, status.state, status.pid, uptime, status.restarts, health
