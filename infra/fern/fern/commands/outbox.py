"""`fern outbox`: what waits to be published, what is parked and why, and what to do about it, row by row or by the group."""

import json
from collections.abc import Callable
from typing import Any
from uuid import UUID

import click
from rich.table import Table

from fern.client import APIS, Refused, call, counting, in_batches
from fern.errors import FernError
from fern.runtime.progress import make_console


@click.group()
def outbox() -> None:
    """Outbox rows: list, retry, discard. A parked row holds up its own labour until it is retried or discarded."""


@outbox.command("ls")
@click.option("--parked", is_flag=True, help="Only rows that were given up on and wait for a person, by reason.")
@click.option("--rows", is_flag=True, help="With --parked: every row instead of the groups.")
@click.option("--labour", "labour_id", type=click.UUID, help="Only rows of this labour.")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="Rows per service.")
@click.option("--json", "as_json", is_flag=True, help="For programs; with --parked both groups and rows.")
def list_rows(parked: bool, rows: bool, labour_id: UUID | None, limit: int, as_json: bool) -> None:
    """Show rows of both services, oldest first; parked ones as groups with the same reason."""
    grouped = parked and not labour_id
    groups = _groups(None, None, None) if grouped else []
    items = [] if grouped and not rows and not as_json else _rows(parked, labour_id, limit)
    if as_json:
        click.echo(json.dumps({**({"groups": groups} if grouped else {}), "items": items}, indent=2))
        return
    if grouped and not rows:
        make_console().print(_table_of_groups(groups) if groups else "nothing is parked")
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


def _rows(parked: bool, labour_id: UUID | None, limit: int) -> list[dict[str, Any]]:
    parameters: dict[str, Any] = {"parked": parked, "limit": limit}
    if labour_id:
        parameters["ordering_key"] = str(labour_id)
    return [
        {"service": service, **item}
        for service, api in APIS.items()
        for item in call(api, "GET", "/operations/outbox", params=parameters)["items"]
    ]


def _groups(service: str | None, type: str | None, reason: str | None) -> list[dict[str, Any]]:
    """The same rows that the services would settle with the same selection."""
    return [
        {"service": name, **group}
        for name in ([service] if service else APIS)
        for group in call(APIS[name], "GET", "/operations/outbox/parked")["items"]
        if type in (None, group["type"]) and (reason or "").lower() in (group["reason"] or "").lower()
    ]


def _table_of_groups(groups: list[dict[str, Any]]) -> Table:
    table = Table("service", "type", "rows", "labours", "parked since", "reason", box=None, pad_edge=False)
    for group in groups:
        table.add_row(
            group["service"],
            group["type"],
            str(group["count"]),
            str(group["labours"]),
            group["oldest_parked_at"][:19],
            group["reason"] or "",
        )
    return table


def _state(item: dict[str, Any]) -> str:
    for column, state in (("discarded_at", "discarded"), ("published_at", "published"), ("parked_at", "parked")):
        if item[column]:
            return state
    return "backing off" if item["attempts"] else "waiting"


def _selection(command: Callable[..., None]) -> Callable[..., None]:
    for option in (
        click.option("--all-parked", is_flag=True, help="Every parked row."),
        click.option("--service", type=click.Choice(list(APIS)), help="Parked rows of one service only."),
        click.option("--type", "event_type", help="Parked rows of this event type."),
        click.option("--reason", help="Parked rows whose reason contains this text."),
        click.argument("event_id", type=click.UUID, required=False),
    ):
        command = option(command)
    return command


@outbox.command("retry")
@_selection
def retry(
    event_id: UUID | None, reason: str | None, event_type: str | None, service: str | None, all_parked: bool
) -> None:
    """Try a row again at once, or a group of parked rows, as if they had never failed."""
    if event_id:
        click.echo(f"{_settle(event_id, 'retry')}: {event_id} will be tried again")
        return
    groups = _chosen("retry", reason, event_type, service, all_parked)
    settled = _settle_group("retry", groups, reason, event_type)
    click.echo(f"{settled} parked rows will be tried again")


@outbox.command("discard")
@_selection
@click.option("--yes", is_flag=True, help="Do not ask.")
def discard(
    event_id: UUID | None, reason: str | None, event_type: str | None, service: str | None, all_parked: bool, yes: bool
) -> None:
    """Give a row up for good, or a group of parked rows. They stay in the table, are never published, and their labours go on."""
    if event_id:
        click.echo(f"{_settle(event_id, 'discard')}: {event_id} is discarded")
        return
    groups = _chosen("discard", reason, event_type, service, all_parked)
    if not yes:
        make_console().print(_table_of_groups(groups))
        count = sum(group["count"] for group in groups)
        click.confirm(f"Discard these {count} events? Nobody will ever be told of them.", abort=True)
    settled = _settle_group("discard", groups, reason, event_type)
    click.echo(f"{settled} parked rows are discarded")


def _chosen(
    verb: str, reason: str | None, event_type: str | None, service: str | None, all_parked: bool
) -> list[dict[str, Any]]:
    if not (reason or event_type or service or all_parked):
        raise FernError(f"say what to {verb}: an event id, or a group.", command=f"fern outbox {verb} --all-parked")
    if not (groups := _groups(service, event_type, reason)):
        raise FernError("nothing like that is parked.", command="fern outbox ls --parked")
    return groups


def _settle_group(verb: str, groups: list[dict[str, Any]], reason: str | None, event_type: str | None) -> int:
    settled = 0
    with counting(f"fern outbox {verb}", sum(group["count"] for group in groups)) as advance:
        for service in dict.fromkeys(group["service"] for group in groups):
            selection = {"type": event_type, "reason": reason}
            for batch in in_batches(APIS[service], f"/operations/outbox/parked/{verb}", selection):
                settled += len(batch)
                advance(len(batch))
    return settled


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
