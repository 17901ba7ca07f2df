"""`fern kill`: kills a process, as a crash does."""

import click

from fern.runtime.system import kill_process
from fern.settings import Settings


@click.command()
@click.argument("process")
def kill(process: str) -> None:
    """Kill PROCESS with SIGKILL. Its supervisor starts it again."""
    click.echo(kill_process(Settings.load(), process))
