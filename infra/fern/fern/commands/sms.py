"""`fern sms`: the SMS sandbox's own `serve`; and messages in the ledger, with a person's word about those in doubt."""

import json
from uuid import UUID

import click
from rich.table import Table

from fern.client import Refused, call
from fern.errors import FernError
from fern.runtime.progress import make_console
from sms_sandbox.command import sms as sandbox

STATES = ("PENDING", "SENDING", "IN_DOUBT", "SENT", "DELIVERED", "UNDELIVERED", "FAILED")
DECISIONS = {
    "sent": "counts as sent",
    "send-again": "is sent again",
    "give-up": "is given up",
}


@click.group()
def sms() -> None:
    """The SMS sandbox, a stand-in for Twilio that shows the phones; and the ledger of what was sent."""


sms.add_command(sandbox.commands["serve"])


@sms.command("ls")
@click.option("--state", type=click.Choice(STATES, case_sensitive=False), default="IN_DOUBT", show_default=True)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="For programs.")
def list_messages(state: str, limit: int, as_json: bool) -> None:
    """Show messages in one state, oldest first; without phone numbers and texts."""
    items = call("notification-api", "GET", "/operations/notifications", params={"state": state, "limit": limit})[
        "items"
    ]
    if as_json:
        click.echo(json.dumps({"items": items}, indent=2))
        return
    table = Table(
        "notification", "about", "labour", "person", "attempt", "since", "last trouble", box=None, pad_edge=False
    )
    for item in items:
        table.add_row(
            item["id"],
            item["event_type"],
            item["labour_id"],
            item["person_name"],
            str(item["attempt"]),
            item["in_doubt_at"] or item["created_at"],
            item["failure"] or "",
        )
    make_console().print(table if items else f"no message is {state}")


@sms.command("resolve")
@click.argument("notification_id", type=click.UUID)
@click.argument("decision", type=click.Choice(list(DECISIONS)))
def resolve(notification_id: UUID, decision: str) -> None:
    """Decide about a message in doubt: it was sent, send it again, or give it up."""
    path = f"/operations/notifications/{notification_id}/resolve"
    try:
        call("notification-api", "POST", path, json={"decision": decision})
    except Refused as refused:
        raise FernError(refused.message, command="fern sms ls --state IN_DOUBT") from None
    click.echo(f"{notification_id} {DECISIONS[decision]}")
