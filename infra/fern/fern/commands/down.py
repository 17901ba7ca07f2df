"""`fern down`."""

import click

from fern.runtime.system import stop
from fern.settings import Settings


@click.command()
def down() -> None:
    """Stop everything, gracefully; data stays."""
    stop(Settings.load(), delete_data=False)
    click.echo("everything is down; the data is kept")
