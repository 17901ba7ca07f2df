"""`fern trace`: shows every hop of an event, or the events of a labour."""

import click

from fern.output import json_option, print_json
from fern.settings import Settings
from fern.trace import journey


@click.command()
@click.argument("identifier", metavar="EVENT_OR_LABOUR_ID")
@json_option
def trace(identifier: str, as_json: bool) -> None:
    """Show every hop of an event, from the request to the SMS and back; or one line for each event of a labour."""
    found = journey(Settings.load(), identifier)
    if as_json:
        print_json(found.to_json())
        return
    click.echo(str(found))
    if found.id == found.labour_id:
        click.echo("\nEvery hop of one of these events:  fern trace EVENT")
