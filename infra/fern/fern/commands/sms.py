"""`fern sms`: serves the SMS sandbox and replies from its phones; lists messages of the ledger, and resolves those in doubt."""

from uuid import UUID

import click

from fern.client import RequestRefused, call, items
from fern.contexts import require_local
from fern.errors import FernError
from fern.output import Group, json_option, limit_option, print_json, print_table
from sms_sandbox.command import main as sandbox

STATES = (
    "AWAITING_CONSENT",
    "PENDING",
    "SENDING",
    "IN_DOUBT",
    "SENT",
    "DELIVERED",
    "UNDELIVERED",
    "FAILED",
    "SUPERSEDED",
)
DECISIONS = {"sent": "counts as sent", "send-again": "is sent again", "give-up": "is given up"}


@click.group(cls=Group)
@click.pass_context
def sms(ctx: click.Context) -> None:
    """Serve the SMS sandbox, a stand-in for Twilio, and reply from its phones; list messages, and resolve those in doubt."""
    if ctx.invoked_subcommand in ("serve", "reply"):
        require_local(f"sms {ctx.invoked_subcommand}")


sms.add_command(sandbox.commands["serve"])


@sms.command("reply")
@click.argument("phone")
@click.argument("text")
def reply(phone: str, text: str) -> None:
    """Send TEXT from PHONE, one of the sandbox, as its owner would: YES agrees to messages, STOP refuses them."""
    call("sms", "POST", "/sandbox/inbound", json={"from": phone, "body": text})
    click.echo(f"{phone} says {text}")


@sms.command("ls")
@click.option(
    "--state",
    type=click.Choice(STATES, case_sensitive=False),
    default="IN_DOUBT",
    show_default=True,
    help="Only messages in this state.",
)
@limit_option(100, "Number of messages.")
@json_option
def list_messages(state: str, limit: int, as_json: bool) -> None:
    """Show the messages in one state, oldest first, without phone numbers and texts."""
    found = items("notification", "/operations/notifications", state=state, limit=limit)
    if as_json:
        print_json({"items": found})
        return
    shown = ("id", "event_type", "labour_id", "person_name", "attempt", "since", "failure")
    rows = [{**item, "since": item["in_doubt_at"] or item["created_at"]} for item in found]
    columns = "notification | about | labour | person | attempt | since | last failure"
    print_table(columns, ([row[name] for name in shown] for row in rows), empty=f"no message is {state}")


@sms.command("resolve")
@click.argument("notification_id", type=click.UUID)
@click.argument("decision", type=click.Choice(list(DECISIONS)))
def resolve(notification_id: UUID, decision: str) -> None:
    """Decide about a message in doubt: it was sent, send it again, or give it up."""
    path = f"/operations/notifications/{notification_id}/resolve"
    try:
        call("notification", "POST", path, json={"decision": decision})
    except RequestRefused as refused:
        raise FernError(refused.message, command="fern sms ls --state IN_DOUBT") from None
    click.echo(f"{notification_id} {DECISIONS[decision]}")
