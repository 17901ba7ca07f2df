"""`fern reset`."""

import shutil

import click

from fern.errors import FernError
from fern.runtime.system import stop
from fern.settings import Settings

# All that a run leaves in its home; `reset` deletes nothing where it finds anything else.
OURS = ("heartbeats", "logs", "postgres", "pubsub", "running.json", "sms", "supervisor")


@click.command()
@click.option("--yes", is_flag=True, help="Do not ask.")
def reset(yes: bool) -> None:
    """Stop everything and delete all data and logs."""
    settings = Settings.load()
    if not yes:
        click.confirm(f"Delete everything in {settings.home} and start over?", abort=True)
    found = [path.name for path in settings.home.iterdir()] if settings.home.exists() else []
    if foreign := [name for name in found if not name.startswith(OURS)]:
        raise FernError(
            f"{settings.home} has things in it that are not ours ({', '.join(sorted(foreign)[:3])}); nothing was deleted.",
            command=f"ls {settings.home}",
        )
    stop(settings, delete_data=True)
    if settings.home.exists():
        shutil.rmtree(settings.home)
    click.echo("everything is down and deleted; `make up` starts over")
