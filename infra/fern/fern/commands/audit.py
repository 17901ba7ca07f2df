"""`fern audit`: accounts for every event and every text of the running system."""

import asyncio
import json
import os
from collections.abc import AsyncIterator

import click
from rich.console import Console

from fern.audit import auditor
from fern.audit.account import Account, show
from fern.audit.auditor import OVERDUE
from fern.dead_letters import DeadLetter, dead_letters
from fern.errors import NotClean
from fern.runtime.postgres import SERVICES
from fern.runtime.progress import make_console
from fern.settings import PROJECT_ID, Settings
from messaging.errors import BusUnavailable
from messaging.pubsub import PubSub


@click.command()
@click.option(
    "--overdue", type=click.FloatRange(0), default=OVERDUE, show_default=True, help="Seconds anything may take."
)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def audit(overdue: float, as_json: bool) -> None:
    """Account for every event: committed = published = claimed = effects = SMS.

    Reads both databases, the dead letters and the SMS sandbox, at any time. Names every event that is not where it should be,
    with the command to do something about it. Ends with exit code 20 if there is one.

    The databases are LABOUR_DATABASE_URL and NOTIFICATION_DATABASE_URL, or those of the local system.
    """
    account = asyncio.run(_audit(Settings.load(), overdue))
    if as_json:
        click.echo(json.dumps(account.to_json(), indent=2))
    else:
        show(account, make_console())
    if not account.clean:
        found = ", ".join(f"{count} {kind}" for kind, count in account.totals.items())
        raise NotClean(f"the account does not add up: {found}.", command=account.findings[0].command)


async def _audit(settings: Settings, overdue: float) -> Account:
    given = {name: os.environ.get(f"{name.upper()}_DATABASE_URL", "") for name in SERVICES}
    databases = {name: url or settings.postgres.url(name, name) for name, url in given.items()}
    local = None if any(given.values()) else settings.url("sms-sandbox")
    with Console(stderr=True).status("looking for dead letters") as status:

        def progress(what: str, done: int, of: int | None) -> None:
            status.update(f"{what}: {done:,}" + (f" of {of:,}" if of else ""))

        return await auditor.audit(
            databases,
            sandbox=os.environ.get("TWILIO_BASE_URL") or local,
            dead_letters=_dead_letters(settings),
            overdue_seconds=overdue,
            progress=progress,
        )


async def _dead_letters(settings: Settings) -> AsyncIterator[DeadLetter]:
    project = os.environ.get("PUBSUB_PROJECT_ID", PROJECT_ID)
    if project == PROJECT_ID:
        os.environ.setdefault("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{settings.port('pubsub')}")
    bus = PubSub(project)
    try:
        async for letter in dead_letters(bus):
            yield letter
    except BusUnavailable:
        click.echo("The bus does not answer, so nobody knows what is among the dead letters.", err=True)
    finally:
        await bus.close()
