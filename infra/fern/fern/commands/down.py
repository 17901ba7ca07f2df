"""`fern down`: stops everything and keeps the data."""

import click

from fern.runtime.system import stop
from fern.settings import Settings


@click.command()
def down() -> None:
    """Stop everything gracefully. The data is kept."""
    stop(Settings.load(), delete_data=False)
    click.echo("everything is down; the data is kept")
