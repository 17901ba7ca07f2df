"""`fern kill`."""

import click

from fern.runtime.system import kill_process
from fern.settings import Settings


@click.command()
@click.argument("process")
def kill(process: str) -> None:
    """Kill a process the hard way (SIGKILL), to see the system survive it."""
    click.echo(kill_process(Settings.load(), process))
