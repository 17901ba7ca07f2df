"""What the provider tells us: how far a message got, and that somebody wants no more of them.

Callbacks come signed, in any order, more than once, or never. They are applied by rank: a message only ever moves forward, so
a late or repeated callback changes nothing. A callback is also proof that the message exists: it settles a doubt.
"""

from uuid import UUID

from structlog import get_logger

from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger

log = get_logger()

STOP_WORDS = frozenset({"STOP", "STOPALL", "UNSUBSCRIBE", "END", "QUIT", "REVOKE", "OPTOUT", "CANCEL"})
START_WORDS = frozenset({"START", "YES", "UNSTOP"})

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
    """True if it changed anything.

    That a message got through counts, whichever attempt it was: the person has it. That one did not counts only for the
    attempt and the message it is about: another may be under way, or have arrived.
    """
    match status:
        case "accepted" | "queued" | "sending" | "sent":
            return await ledger.settle_sent(uow, notification_id, sid=sid)
        case "delivered":
            await ledger.settle_sent(uow, notification_id, sid=sid)
            return await ledger.settle_delivered(uow, notification_id)
        case "undelivered" | "failed":
            reason = _REASONS.get(code or 0, f"the network did not deliver it (error {code or 'unknown'})")
            await ledger.settle_sent(uow, notification_id, sid=sid, attempt=attempt)
            return await ledger.settle_undelivered(uow, notification_id, sid=sid, reason=reason, code=code)
        case _:
            log.warning("unknown message status", notification_id=str(notification_id), status=status)
            return False


async def apply_inbound(uow: UnitOfWork, *, phone: str, body: str) -> None:
    word = body.strip().upper()
    if word in STOP_WORDS:
        await ledger.suppress(uow.session, phone)
        log.info("a person opted out")
    elif word in START_WORDS:
        await ledger.unsuppress(uow.session, phone)
        log.info("a person opted in again")
