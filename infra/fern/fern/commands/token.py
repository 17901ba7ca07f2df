"""`fern token`: says who you are to the Labour API, on this machine. Elsewhere an identity provider does that."""

import time

import click
import jwt

from fern.settings import TOKEN_SECRET


def make_token(name: str, hours: float = 12) -> str:
    now = int(time.time())
    claims = {"sub": name, "aud": "fernlabour", "iat": now, "exp": now + int(hours * 3600)}
    return jwt.encode(claims, TOKEN_SECRET, algorithm="HS256")


@click.command()
@click.argument("name")
@click.option("--hours", type=click.FloatRange(min=0.001), default=12, show_default=True, help="How long it is good.")
def token(name: str, hours: float) -> None:
    """Print a bearer token for NAME, anybody you like.

    curl -H "Authorization: Bearer $(fern token ada)" http://127.0.0.1:8401/api/v1/labours
    """
    click.echo(make_token(name, hours))
