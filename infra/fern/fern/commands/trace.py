"""`fern trace`: one event or labour, hop by hop."""

import json

import click

from fern.settings import Settings
from fern.trace import journey


@click.command()
@click.argument("identifier", metavar="EVENT_OR_LABOUR_ID")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def trace(identifier: str, as_json: bool) -> None:
    """The whole journey of one event, from the request to the SMS and back; or all events of a labour, one line each."""
    told = journey(Settings.load(), identifier)
    if as_json:
        click.echo(json.dumps(told.to_json(), indent=2))
        return
    click.echo(str(told))
    if told.id == told.labour_id:
        click.echo("\nThe journey of one of them:  fern trace EVENT")
