"""`fern outbox`: rows that wait to be published or are parked, and what to do about them, one by one or by group."""

from typing import Any
from uuid import UUID

import click

from fern.client import RequestRefused, call, in_batches, items
from fern.errors import FernError
from fern.output import Group, counting, json_option, limit_option, options, print_json, print_table, yes_option
from fern.settings import SERVICES


@click.group(cls=Group)
def outbox() -> None:
    """List, retry or discard rows of the outboxes. A parked row holds up its own labour until it is retried or discarded."""


@outbox.command("ls")
@click.option("--parked", is_flag=True, help="Only rows that wait for an operator's decision, by reason.")
@click.option("--rows", is_flag=True, help="With --parked: every row instead of the groups.")
@click.option("--labour", "labour_id", type=click.UUID, help="Only rows of this labour.")
@limit_option(100, "Rows per service.")
@json_option
def list_rows(parked: bool, rows: bool, labour_id: UUID | None, limit: int, as_json: bool) -> None:
    """Show rows of both services, oldest first; parked ones as groups with the same reason."""
    is_grouped = parked and not labour_id
    groups = _groups() if is_grouped else []
    if is_grouped and not rows and not as_json:
        _print_groups(groups)
        return
    query: dict[str, Any] = {"parked": parked, "limit": limit} | ({"ordering_key": labour_id} if labour_id else {})
    found = [{"service": name, **row} for name in SERVICES for row in items(name, "/operations/outbox", **query)]
    if as_json:
        print_json({**({"groups": groups} if is_grouped else {}), "items": found})
        return
    shown = ("service", "event_id", "type", "ordering_key", "state", "attempts", "last_error")
    lines = ([{**item, "state": _state(item)}[name] for name in shown] for item in found)
    print_table("service | event | type | labour | state | attempts | last error", lines, empty="no rows")


def _state(item: dict[str, Any]) -> str:
    for column, state in (("discarded_at", "discarded"), ("published_at", "published"), ("parked_at", "parked")):
        if item[column]:
            return state
    return "backing off" if item["attempts"] else "waiting"


def _groups(service: str | None = None, type: str | None = None, reason: str | None = None) -> list[dict[str, Any]]:
    """The parked rows that the services would change with the same selection."""
    return [
        {"service": name, **group}
        for name in ([service] if service else SERVICES)
        for group in items(name, "/operations/outbox/parked")
        if type in (None, group["type"]) and (reason or "").lower() in (group["reason"] or "").lower()
    ]


def _print_groups(groups: list[dict[str, Any]]) -> None:
    shown = ("service", "type", "count", "labours", "oldest_parked_at", "reason")
    rows = [{**group, "oldest_parked_at": group["oldest_parked_at"][:19]} for group in groups]
    columns = "service | type | rows | labours | parked since | reason"
    print_table(columns, ([row[name] for name in shown] for row in rows), empty="nothing is parked")


_selection = options(
    click.argument("event_id", type=click.UUID, required=False),
    click.option("--reason", help="Parked rows whose reason contains this text."),
    click.option("--type", help="Parked rows of this event type."),
    click.option("--service", type=click.Choice(SERVICES), help="Parked rows of one service only."),
    click.option("--all-parked", is_flag=True, help="Every parked row."),
)


@outbox.command("retry")
@_selection
def retry(event_id: UUID | None, **group: Any) -> None:
    """Try a row again at once, or a group of parked rows, with all attempts left."""
    if event_id:
        click.echo(f"{_change(event_id, 'retry')}: {event_id} will be tried again")
    else:
        click.echo(f"{_change_group('retry', yes=True, **group)} parked rows will be tried again")


@outbox.command("discard")
@_selection
@yes_option
def discard(event_id: UUID | None, yes: bool, **group: Any) -> None:
    """Discard a row, or a group of parked rows. They stay in the table and are never published.

    Their labours are no longer held up.
    """
    if event_id:
        click.echo(f"{_change(event_id, 'discard')}: {event_id} is discarded")
    else:
        click.echo(f"{_change_group('discard', yes=yes, **group)} parked rows are discarded")


def _change(event_id: UUID, verb: str) -> str:
    """Retry or discard one row; returns the service in whose outbox it is."""
    for service in SERVICES:
        try:
            call(service, "POST", f"/operations/outbox/{event_id}/{verb}")
            return service
        except RequestRefused as refused:
            if refused.status != 404:
                raise
    raise FernError(f"no event {event_id} is waiting in any outbox.", command="fern outbox ls --parked")


def _change_group(
    verb: str, *, service: str | None, type: str | None, reason: str | None, all_parked: bool, yes: bool
) -> int:
    """Retry or discard a group of parked rows; returns their number."""
    if not (reason or type or service or all_parked):
        what = f"no rows to {verb} are named: give an event id, or options for a group."
        raise FernError(what, command="fern outbox ls --parked")
    if not (groups := _groups(service, type, reason)):
        raise FernError("no parked row matches these options.", command="fern outbox ls --parked")
    total, changed = sum(group["count"] for group in groups), 0
    if not yes:
        _print_groups(groups)
        click.confirm(
            f"Discard these {total} events? They will never be published, so no text about them is sent.", abort=True
        )
    with counting(f"fern outbox {verb}", total) as advance:
        for name in dict.fromkeys(group["service"] for group in groups):
            for batch in in_batches(name, f"/operations/outbox/parked/{verb}", {"type": type, "reason": reason}):
                changed += len(batch)
                advance(len(batch))
    return changed
