"""`fern token`: a bearer token for the Labour API of this machine."""

import click

from fern.tokens import make_token


@click.command()
@click.argument("name")
@click.option("--hours", type=click.FloatRange(min=0.001), default=12, show_default=True, help="How long it is good.")
def token(name: str, hours: float) -> None:
    """Print a bearer token for NAME, anybody you like.

    curl -H "Authorization: Bearer $(fern token ada)" http://127.0.0.1:8401/api/v1/labours
    """
    click.echo(make_token(name, hours))
