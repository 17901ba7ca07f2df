"""`fern reset`: stops everything and deletes all data and logs."""

import shutil

import click

from fern.errors import FernError
from fern.output import yes_option
from fern.runtime.system import stop
from fern.settings import Settings

# The beginnings of all file names that a run leaves in its home. `reset` deletes nothing where it finds another.
OURS = ("heartbeats", "logs", "overrides", "postgres", "pubsub", "running.json", "sms", "supervisor")


@click.command()
@yes_option
def reset(yes: bool) -> None:
    """Stop everything and delete all data and logs, and what `fern scale` and `fern topology set` changed."""
    settings = Settings.load()
    if not yes:
        click.confirm(f"Delete everything in {settings.home} and start over?", abort=True)
    found = [path.name for path in settings.home.iterdir()] if settings.home.exists() else []
    if foreign := [name for name in found if not name.startswith(OURS)]:
        named = ", ".join(sorted(foreign)[:3])
        what = f"{settings.home} contains files that fern did not create ({named}); nothing was deleted."
        raise FernError(what, command=f"ls {settings.home}")
    stop(settings, delete_data=True)
    if settings.home.exists():
        shutil.rmtree(settings.home)
    click.echo("everything is down and deleted; `make up` starts over")
