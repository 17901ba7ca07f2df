"""Takes a request to send: checks it as Twilio does, keeps the message, and lets the faults have their say.

The stations of a create, and the faults that may strike there:
(request-lost, rate-limited) → checked → (refused) → kept → (created-late, reply-lost, created-500, slow) → answered.
"""

import re
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from fern.sms.errors import Refused
from fern.sms.message import LATE, Message
from fern.sms.sandbox import Sandbox
from fern.sms.segments import count_segments

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


@dataclass(frozen=True, slots=True)
class Reply:
    """What the caller gets: the message, an error (perhaps although the message was created), or None: no answer."""

    answer: Message | Refused | None
    after_seconds: float = 0.0


def take(sandbox: Sandbox, account_sid: str, form: Mapping[str, str]) -> Reply:
    """One transaction: when it returns, what happened is on disk."""
    with sandbox.store.transaction():
        reply, created = _take(sandbox, account_sid, form)
    if created and created.status != LATE:
        sandbox.feed.publish("message", created.as_seen())
    sandbox.carrier.wake.set()
    return reply


def _take(sandbox: Sandbox, account_sid: str, form: Mapping[str, str]) -> tuple[Reply, Message | None]:
    strikes = partial(sandbox.faults.strikes, phone=form.get("To", ""))
    if strikes("request-lost"):
        return Reply(None), None
    if strikes("rate-limited"):
        return Reply(Refused(20429)), None
    code = check(form) or (21610 if sandbox.store.has_opted_out(form["To"]) else None)
    if code is None and (fault := strikes("refused")):
        code = fault.code
    if code is not None:
        words = {"to": form.get("To", ""), "from_": form.get("From", ""), "url": form.get("StatusCallback", "")}
        return Reply(Refused(code, **words)), None

    message = _message(account_sid, form, pace=sandbox.settings.pace)
    if lag := strikes("list-lag"):
        message = replace(message, list_lag=lag.seconds)
    late = strikes("created-late")
    if late:
        message = replace(message, status=LATE, step_at=message.created_at + late.seconds)
    sandbox.store.save(message)
    if late or strikes("reply-lost"):
        return Reply(None), message
    if strikes("created-500"):
        return Reply(Refused(20500)), message
    slow = strikes("slow")
    return Reply(message, slow.seconds if slow else 0.0), message


def check(form: Mapping[str, str]) -> int | None:
    """The code of what is wrong with the request, if anything."""
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
    if sender and not SENDER.fullmatch(sender):
        return 21212
    if not sender and not SERVICE_SID.fullmatch(service):
        return 21212
    if not PHONE.fullmatch(to):
        return 21211
    if callback and not _is_callback(callback):
        return 21609
    return MAGIC_FROM.get(sender) or MAGIC_TO.get(to)


def _is_callback(url: str) -> bool:
    try:
        parts = urlsplit(url)
        return parts.scheme in ("http", "https") and bool(HOST.fullmatch(parts.hostname or "")) and parts.port != 0
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
