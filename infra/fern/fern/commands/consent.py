"""`fern consent`: whether a person must agree before they are texted, on this machine."""

from dataclasses import replace

import click

from fern.overrides import Overrides
from fern.runtime.system import change
from fern.settings import Settings

MEANINGS = {
    "required": "a person is asked first, and gets nothing else until they say YES",
    "assumed": "every person counts as having agreed",
}


@click.command()
@click.argument("mode", type=click.Choice(list(MEANINGS)), required=False)
def consent(mode: str | None) -> None:
    """Ask each person before they are texted (required), or not (assumed). Without MODE, show which it is.

    A running system follows at once. `fern sms reply PHONE YES` answers for a person. The mode is kept over `fern down` and `fern
    up`, until it is changed or `fern reset` forgets it. Outside local mode consent is always required.
    """
    settings = Settings.load()
    overrides = Overrides.load(settings)
    running = True if mode is None else change(settings, replace(overrides, consent=mode))
    shown = mode or overrides.consent
    click.echo(f"consent is {shown}: {MEANINGS[shown]}{'' if running else ', from the next `fern up` on'}")
