"""Every transition between the states of a message, as a value. `delivery/ledger.py` applies one or many.

A transition names the states (and mostly the attempt) that it starts from. If two race, one changes the message, and the other
changes nothing.
"""

from typing import NamedTuple
from uuid import UUID

from notification.domain.notification import UNSETTLED, Lease, NotificationState

_SENDING, _IN_DOUBT, _SENT = (NotificationState.SENDING,), (NotificationState.IN_DOUBT,), (NotificationState.SENT,)

NEWER_TAKEN = "a newer message to this person was sent instead"


class Transition(NamedTuple):
    """Without `attempt`, any attempt counts. Without `failure`, the message keeps the last one, unless it is sent now.

    `pause` is in seconds: a message that is PENDING or IN_DOUBT is due after it.
    """

    id: UUID
    start: tuple[NotificationState, ...]
    end: NotificationState
    attempt: int | None = None
    sid: str | None = None
    failure: str | None = None
    failure_code: int | None = None
    pause: float = 0.0


def return_to_queue(lease: Lease, *, retry_in: float, reason: str) -> Transition:
    """For a message that was certainly not sent."""
    end = NotificationState.PENDING
    return Transition(lease.id, _SENDING, end, lease.attempt, failure=reason, pause=retry_in)


def mark_in_doubt(lease: Lease, *, reason: str) -> Transition:
    return Transition(lease.id, _SENDING, NotificationState.IN_DOUBT, lease.attempt, failure=reason)


def record_sent(
    notification_id: UUID,
    *,
    sid: str | None,
    attempt: int | None = None,
    start: tuple[NotificationState, ...] = (*UNSETTLED, NotificationState.SUPERSEDED),
) -> Transition:
    """For a message that the provider has. Without `attempt`, any attempt counts: whichever it was, the person gets the message.

    A superseded message is SENT as well: the provider did not list it, and reports now that it was sent.
    """
    return Transition(notification_id, start, NotificationState.SENT, attempt, sid)


def record_failed(
    notification_id: UUID,
    *,
    attempt: int | None,
    reason: str,
    code: int | None = None,
    start: tuple[NotificationState, ...] = _SENDING,
) -> Transition:
    end = NotificationState.FAILED
    return Transition(notification_id, start, end, attempt, failure=reason, failure_code=code)


def send_again(notification_id: UUID, *, attempt: int | None, pause: float = 0.0) -> Transition:
    """Returns a message in doubt to the queue, to be sent after `pause` seconds."""
    return Transition(notification_id, _IN_DOUBT, NotificationState.PENDING, attempt, pause=pause)


def supersede(notification_id: UUID, *, attempt: int) -> Transition:
    """For a message in doubt that the provider does not have, if a newer one was taken."""
    return Transition(notification_id, _IN_DOUBT, NotificationState.SUPERSEDED, attempt, failure=NEWER_TAKEN)


def record_delivered(notification_id: UUID) -> Transition:
    return Transition(notification_id, _SENT, NotificationState.DELIVERED)


def record_undelivered(notification_id: UUID, *, sid: str, reason: str, code: int | None) -> Transition:
    """Only for the message whose sid the row has. A row without one, which an operator declared sent, accepts any."""
    end = NotificationState.UNDELIVERED
    return Transition(notification_id, _SENT, end, sid=sid, failure=reason, failure_code=code)
