"""`fern token`: an access token for the Labour API of the local system."""

import click

from fern.tokens import make_token


@click.command()
@click.argument("name")
@click.option(
    "--hours", type=click.FloatRange(min=0.001), default=12, show_default=True, help="Hours until it expires."
)
def token(name: str, hours: float) -> None:
    """Print a local access token for the user NAME. Any name will do.

    curl -H "Authorization: Bearer $(fern token ada)" http://127.0.0.1:8401/api/v1/labours
    """
    click.echo(make_token(name, hours))
