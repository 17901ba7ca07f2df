"""`fern console`: serves the web page that shows every stage and injects faults."""

import click

from fern.console.server import work
from fern.output import Group
from fern.settings import Settings
from servicekit.process import run


@click.group(cls=Group)
def console() -> None:
    """Serve the web page that drives a labour, shows every stage live, and injects faults."""


@console.command("serve")
@click.option("--port", type=click.IntRange(1, 65535), required=True, help="Port to listen on, on this machine only.")
def serve_command(port: int) -> None:
    """Serve the console in the foreground."""
    run("console", lambda stop: work(Settings.load(), port, stop))
