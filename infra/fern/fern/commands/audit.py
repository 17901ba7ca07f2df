"""`fern audit`: compares every event and every text of the running system, stage by stage."""

import asyncio
import os
from collections.abc import AsyncIterator

import click
from rich.console import Console

from fern.audit import auditor
from fern.audit.auditor import OVERDUE, AuditReport
from fern.audit.report import show
from fern.dead_letters import DeadLetter, dead_letters, open_bus
from fern.errors import ContextInvalid, Late, NotClean, NotRunning
from fern.output import json_option, make_console, print_json
from fern.runtime import docker
from fern.settings import PROJECT_ID, SERVICES, Settings


@click.command()
@click.option(
    "--overdue", type=click.FloatRange(0), default=OVERDUE, show_default=True, help="Seconds until the next stage."
)
@json_option
def audit(overdue: float, as_json: bool) -> None:
    """Account for every event: committed = published = claimed = effects = SMS.

    Reads both databases, the dead letters and the SMS sandbox, at any time. Prints every event that is not where it should be,
    with the command to run next. Ends with exit code 20 if there is one, and with 26 if all of them are only late: then nothing
    is lost, and the output says what each one waits for.

    The databases are LABOUR_DATABASE_URL and NOTIFICATION_DATABASE_URL, or those of the local system. A context other than
    `local` needs both variables, because the operators' routes do not show every row.
    """
    report = asyncio.run(_audit(Settings.load(), overdue))
    if as_json:
        print_json(report.to_json())
    else:
        show(report, make_console())
    if report.only_late:
        what = f"nothing is lost, and {report.totals['late']} events or texts are late."
        raise Late(what, command=report.findings[0].command)
    if not report.clean:
        broken = next(finding for finding in report.findings if finding.kind != "late")
        found = ", ".join(f"{count} {kind}" for kind, count in report.totals.items())
        raise NotClean(f"the audit is not clean: {found}.", command=broken.command)


async def _audit(settings: Settings, overdue: float) -> AuditReport:
    given = {name: os.environ.get(f"{name.upper()}_DATABASE_URL", "") for name in SERVICES}
    if settings.context and not all(given.values()):
        unset = " and ".join(f"{name.upper()}_DATABASE_URL" for name, url in given.items() if not url)
        what = f"the audit of the context {settings.context.name} reads both databases: set {unset}."
        raise ContextInvalid(what, command="fern audit --help")
    databases = {name: url or _local_database(settings, name) for name, url in given.items()}
    local = None if any(given.values()) else settings.url("sms-sandbox")
    on_this_machine = not settings.context and os.environ.get("PUBSUB_PROJECT_ID", PROJECT_ID) == PROJECT_ID
    with Console(stderr=True).status("looking for dead letters") as status:

        def progress(what: str, done: int, of: int | None) -> None:
            status.update(f"{what}: {done:,}" + (f" of {of:,}" if of else ""))

        return await auditor.audit(
            databases,
            sandbox=os.environ.get("TWILIO_BASE_URL") or local,
            bus=settings.url("pubsub-http") if on_this_machine else None,
            dead_letters=_dead_letters(),
            overdue_seconds=overdue,
            progress=progress,
        )


def _local_database(settings: Settings, service: str) -> str:
    return (
        docker.database_url(settings, service) if settings.mode == "docker" else settings.postgres.url(service, service)
    )


async def _dead_letters() -> AsyncIterator[DeadLetter]:
    try:
        async with open_bus() as bus:
            async for letter in dead_letters(bus):
                yield letter
    except NotRunning as error:
        click.echo(f"warning: {error.message}; the audit continues without the dead letters", err=True)
