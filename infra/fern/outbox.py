"""`fern outbox`: what waits to be published, what is parked, and what to do about it."""

import json
from typing import Any
from uuid import UUID

import click
from rich.table import Table

from fern.errors import FernError
from fern.operations import Refused, call
from fern.runtime.progress import make_console

APIS = {"labour": "labour-api", "notification": "notification-api"}


@click.group()
def outbox() -> None:
    """Outbox rows: list, retry, discard. A parked row holds up its own labour until it is retried or discarded."""


@outbox.command("ls")
@click.option("--parked", is_flag=True, help="Only rows that were given up on and wait for a person.")
@click.option("--labour", "labour_id", type=click.UUID, help="Only rows of this labour.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Rows per service.")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_rows(parked: bool, labour_id: UUID | None, limit: int, as_json: bool) -> None:
    """Show rows of both services, oldest first."""
    parameters: dict[str, Any] = {"parked": parked, "limit": limit}
    if labour_id:
        parameters["ordering_key"] = str(labour_id)
    items = [
        {"service": service, **item}
        for service, api in APIS.items()
        for item in call(api, "GET", "/operations/outbox", params=parameters)["items"]
    ]
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
        return
    table = Table("service", "event", "type", "labour", "state", "attempts", "last error", box=None, pad_edge=False)
    for item in items:
        table.add_row(
            item["service"],
            item["event_id"],
            item["type"],
            item["ordering_key"],
            _state(item),
            str(item["attempts"]),
            item["last_error"] or "",
        )
    make_console().print(table if items else "no rows")


def _state(item: dict[str, Any]) -> str:
    for column, state in (("discarded_at", "discarded"), ("published_at", "published"), ("parked_at", "parked")):
        if item[column]:
            return state
    return "backing off" if item["attempts"] else "waiting"


@outbox.command("retry")
@click.argument("event_id", type=click.UUID)
def retry(event_id: UUID) -> None:
    """Try a row again at once, as if it had never failed."""
    click.echo(f"{_settle(event_id, 'retry')}: {event_id} will be tried again")


@outbox.command("discard")
@click.argument("event_id", type=click.UUID)
def discard(event_id: UUID) -> None:
    """Give a row up for good. It stays in the table, is never published, and its labour goes on."""
    click.echo(f"{_settle(event_id, 'discard')}: {event_id} is discarded")


def _settle(event_id: UUID, verb: str) -> str:
    """The service in whose outbox it was."""
    for service, api in APIS.items():
        try:
            call(api, "POST", f"/operations/outbox/{event_id}/{verb}")
            return service
        except Refused as refused:
            if refused.status != 404:
                raise
    raise FernError(f"no event {event_id} is waiting in any outbox.", command="fern outbox ls --parked")
