"""A phone replies. STOP and its kin block the number until START, by the provider itself; the app is told as well."""

import re
import secrets
import time

from fern.sms.intake import PHONE
from fern.sms.message import Message
from fern.sms.sandbox import Sandbox
from fern.sms.segments import count_segments

STOP_WORDS = frozenset({"STOP", "UNSUBSCRIBE", "END", "QUIT", "STOPALL", "REVOKE", "OPTOUT", "CANCEL"})
START_WORDS = frozenset({"START", "UNSTOP", "YES"})
HELP_WORDS = frozenset({"HELP", "INFO"})
DEFAULT_NUMBER = "+15005550006"
DEFAULT_ACCOUNT = "AC" + "0" * 32


class BadReply(Exception):
    """The reply cannot have come from a phone. The sentence says why."""


def reply_from_phone(sandbox: Sandbox, phone: str, body: str) -> Message:
    """To the number that texted the phone last, if any did."""
    if not PHONE.fullmatch(phone):
        raise BadReply("`from` must be a phone number such as +447700900123")
    if not 0 < len(body) <= 1600:
        raise BadReply("`body` must have from 1 to 1600 characters")
    now = time.time()
    opt_out_type = _opt_out_type(body)
    with sandbox.store.transaction():
        last = next(iter(sandbox.store.newest(phone, 1)), None)
        message = Message(
            sid="SM" + secrets.token_hex(16),
            account_sid=last.account_sid if last else DEFAULT_ACCOUNT,
            recipient=(last.sender if last else None) or DEFAULT_NUMBER,
            sender=phone,
            service_sid=last.service_sid if last else None,
            body=body,
            segments=count_segments(body),
            direction="inbound",
            status="received",
            created_at=now,
            updated_at=now,
            sent_at=now,
        )
        sandbox.store.save(message)
        if opt_out_type == "STOP":
            sandbox.store.opt_out(phone)
        elif opt_out_type == "START":
            sandbox.store.opt_in(phone)
        if sandbox.settings.inbound_url:
            sandbox.courier.report_inbound(message, sandbox.settings.inbound_url, opt_out_type)
    sandbox.feed.publish("message", message.as_seen())
    if opt_out_type in ("STOP", "START"):
        sandbox.feed.publish("opt-outs", {"items": sandbox.store.opted_out()})
    sandbox.courier.wake.set()
    return message


def _opt_out_type(body: str) -> str | None:
    """Only a keyword alone counts: `please stop` is a sentence, ` Stop.` is a wish."""
    word = re.sub(r"[^A-Z]", "", body.upper()) if len(body.split()) == 1 else ""
    for kind, words in (("STOP", STOP_WORDS), ("START", START_WORDS), ("HELP", HELP_WORDS)):
        if word in words:
            return kind
    return None
