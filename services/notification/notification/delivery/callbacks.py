"""Applies what the provider reports: the delivery status of a message, and replies with which a person agrees or opts out.

Callbacks arrive in any order, more than once, or never. A message only moves forward, so a late or repeated callback changes
nothing. A callback also proves that the provider has the message, so it resolves a message in doubt.
"""

import re
import unicodedata
from collections.abc import Callable
from uuid import UUID

from structlog import get_logger

from messaging import metrics
from messaging.unit_of_work import UnitOfWork
from notification.delivery import consents, ledger
from notification.domain.transitions import record_delivered, record_sent, record_undelivered

log = get_logger()

STATUS_PATH = "/webhooks/twilio/status"  # of the route, which the provider calls with the status of a message
STOP_WORDS = frozenset({"STOP", "STOPALL", "UNSUBSCRIBE", "END", "QUIT", "REVOKE", "OPTOUT", "CANCEL"})
START_WORDS = frozenset({"START", "YES", "UNSTOP"})

_PHONE = re.compile(r"\+[1-9][0-9]{6,14}")

_REASONS = {
    30001: "the provider's queue overflowed",
    30003: "the phone is switched off or out of reach",
    30005: "the number is unknown to its network",
    30006: "the number is a landline or cannot be reached",
    30007: "the network filtered the message",
    30008: "the network did not say why",
}


async def apply_status(
    uow: UnitOfWork, notification_id: UUID, *, sid: str, status: str, code: int | None, attempt: int | None
) -> bool:
    """Record a delivery status. Returns whether the row changed.

    A success counts for any attempt: the person has the message. A failure counts only for the attempt and the sid that it
    names, because another attempt may be under way or delivered.
    """
    match status:
        case "accepted" | "queued" | "sending" | "sent":
            return await ledger.apply_one(uow, record_sent(notification_id, sid=sid))
        case "delivered":
            await ledger.apply_one(uow, record_sent(notification_id, sid=sid))
            if (known := await ledger.sid(uow.connection, notification_id)) and known != sid:
                log.error("the provider delivered a second message", notification_id=str(notification_id))
                uow.after_commit(metrics.sms_doubled)
            return await ledger.apply_one(uow, record_delivered(notification_id))
        case "undelivered" | "failed":
            reason = _REASONS.get(code or 0, f"the network did not deliver it (error {code or 'unknown'})")
            await ledger.apply_one(uow, record_sent(notification_id, sid=sid, attempt=attempt))
            undelivered = record_undelivered(notification_id, sid=sid, reason=reason, code=code)
            return await ledger.apply_one(uow, undelivered)
        case _:
            log.warning("unknown message status", notification_id=str(notification_id), status=status)
            return False


async def apply_inbound(
    uow: UnitOfWork, *, phone: str, body: str, validity: float, wake_dispatcher: Callable[[], None]
) -> None:
    """Apply a reply that is only a keyword, with any punctuation: "Yes!" is one, "please do not stop" is not. Ignore any other.

    A STOP may be written in several parts ("opt out"); a YES must be one word, so that nothing unclear is taken as consent.

    A waiting message older than `validity` seconds is dropped on YES. Wakes the dispatcher after the commit if there is
    anything to send.
    """
    word = re.sub(r"[^A-Z]", "", unicodedata.normalize("NFKC", body).upper())
    if not _PHONE.fullmatch(phone):
        log.warning("a reply that is not from a phone number was ignored")
    elif word in STOP_WORDS:
        dropped = await consents.refuse(uow, phone)
        log.info("a person opted out", dropped=dropped)
    elif word in START_WORDS and len(body.split()) == 1:
        released = await consents.grant(uow, phone, validity=validity)
        if released:
            uow.after_commit(wake_dispatcher)
        log.info("a person opted in", released=released)
