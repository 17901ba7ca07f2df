"""Accepts messages: requests to send, and replies from phones.

A request to send is checked as Twilio does and stored, and the faults that are on are applied.

The steps of a create, and the faults that may strike there:
(request-lost, rate-limited) → checked → (refused) → kept → (created-late, reply-lost, created-500, slow) → answered.

A reply of STOP or one of its synonyms blocks the number until START. The application gets the reply as well.
"""

import re
import secrets
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from functools import partial
from ipaddress import ip_address
from urllib.parse import urlsplit

from sms_sandbox.errors import TwilioError
from sms_sandbox.message import LATE, Message, count_segments
from sms_sandbox.sandbox import Sandbox

SERVICE_SID = re.compile(r"MG[0-9a-f]{32}")
PHONE = re.compile(r"\+[1-9][0-9]{6,14}")
SENDER = re.compile(r"\+[1-9][0-9]{6,14}|[0-9]{5,6}|(?=.*[A-Za-z])[A-Za-z0-9 ]{1,11}")  # number, short code, name
HOST = re.compile(r"[A-Za-z0-9.:-]+")  # no underscores: Twilio takes none
MAX_BODY = 1600

# The magic numbers of Twilio's test credentials
MAGIC_TO = {
    "+15005550001": 21211,
    "+15005550002": 21612,
    "+15005550003": 21408,
    "+15005550004": 21610,
    "+15005550009": 21614,
}
MAGIC_FROM = {"+15005550001": 21212, "+15005550007": 21606, "+15005550008": 21611}

KEYWORDS = {
    "STOP": {"STOP", "UNSUBSCRIBE", "END", "QUIT", "STOPALL", "REVOKE", "OPTOUT", "CANCEL"},
    "START": {"START", "UNSTOP", "YES"},
    "HELP": {"HELP", "INFO"},
}
DEFAULT_NUMBER = "+15005550006"
DEFAULT_ACCOUNT = "AC" + "0" * 32


@dataclass(frozen=True, slots=True)
class Outcome:
    """The answer to the caller: the message, an error (the message may exist nevertheless), or None for no answer."""

    answer: Message | TwilioError | None
    after_seconds: float = 0.0


def take(sandbox: Sandbox, account_sid: str, form: Mapping[str, str]) -> Outcome:
    """Accept or refuse a request to send, in one transaction, which is committed when this returns."""
    with sandbox.store.transaction():
        outcome, created = _take(sandbox, account_sid, form)
    if created and created.status != LATE:
        sandbox.feed.publish("message", created.as_seen())
    sandbox.carrier.wake.set()
    return outcome


def _take(sandbox: Sandbox, account_sid: str, form: Mapping[str, str]) -> tuple[Outcome, Message | None]:
    strikes = partial(sandbox.faults.strikes, phone=form.get("To", ""))
    if strikes("request-lost"):
        return Outcome(None), None
    if strikes("rate-limited"):
        return Outcome(TwilioError(20429)), None
    code = check(form, sandbox.settings.allow_hosts) or (21610 if sandbox.store.has_opted_out(form["To"]) else None)
    if code is None and (fault := strikes("refused")):
        code = fault.code
    if code is not None:
        words = {"to": form.get("To", ""), "from_": form.get("From", ""), "url": form.get("StatusCallback", "")}
        return Outcome(TwilioError(code, **words)), None

    message = _message(account_sid, form, pace=sandbox.settings.pace)
    if lag := strikes("list-lag"):
        message = replace(message, list_lag=lag.seconds)
    late = strikes("created-late")
    if late:
        message = replace(message, status=LATE, step_at=message.created_at + late.seconds)
    sandbox.store.save(message)
    if late or strikes("reply-lost"):
        return Outcome(None), message
    if strikes("created-500"):
        return Outcome(TwilioError(20500)), message
    slow = strikes("slow")
    return Outcome(message, slow.seconds if slow else 0.0), message


def check(form: Mapping[str, str], callback_hosts: Collection[str]) -> int | None:
    """The error code of the request; None if it is valid. `callback_hosts` are allowed beside this machine."""
    to, sender, service = form.get("To", ""), form.get("From", ""), form.get("MessagingServiceSid", "")
    body, callback = form.get("Body", ""), form.get("StatusCallback", "")
    if not to:
        return 21604
    if not sender and not service:
        return 21603
    if not body:
        return 21602
    if len(body) > MAX_BODY:
        return 21617
    if not (SENDER.fullmatch(sender) if sender else SERVICE_SID.fullmatch(service)):
        return 21212
    if not PHONE.fullmatch(to):
        return 21211
    if callback and not _is_callback(callback, callback_hosts):
        return 21609
    return MAGIC_FROM.get(sender) or MAGIC_TO.get(to)


def _is_callback(url: str, hosts: Collection[str]) -> bool:
    """Whether the sandbox may call the URL. Twilio calls any public address; the sandbox calls only this machine and `hosts`."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme not in ("http", "https") or not HOST.fullmatch(host) or parts.port == 0:
            return False
        return host == "localhost" or host in hosts or ip_address(host).is_loopback
    except ValueError:
        return False


def _message(account_sid: str, form: Mapping[str, str], *, pace: float) -> Message:
    now = time.time()
    message = Message(
        sid="SM" + secrets.token_hex(16),
        account_sid=account_sid,
        recipient=form["To"],
        sender=form.get("From") or None,
        service_sid=form.get("MessagingServiceSid") or None,
        body=form["Body"],
        segments=count_segments(form["Body"]),
        direction="outbound-api",
        status="queued",
        created_at=now,
        updated_at=now,
        callback_url=form.get("StatusCallback") or None,
        step_at=now + pace,
    )
    return replace(message, status=message.first_status)


class BadReply(Exception):
    """The reply cannot have come from a phone. The sentence says why."""


def reply_from_phone(sandbox: Sandbox, phone: str, body: str) -> Message:
    """Accept a reply, to the number that texted the phone last, or else to a default number."""
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
    """The kind of keyword that a reply is, or None. Only a keyword alone counts: ` Stop.` does, `please stop` does not."""
    word = re.sub(r"[^A-Z]", "", body.upper()) if len(body.split()) == 1 else ""
    return next((kind for kind, words in KEYWORDS.items() if word in words), None)
