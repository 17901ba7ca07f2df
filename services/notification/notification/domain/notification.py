"""A message to one person about one event: its states, and what to do while its outcome is unknown.

PENDING ─► SENDING(attempt n) ─► SENT(sid) ─► DELIVERED
   ▲          │        │            └───────► UNDELIVERED
   │          │        └────────────────────► FAILED        the provider refused it permanently
   │          ▼
   └────── IN_DOUBT ─► SENT or FAILED                       it is unknown whether the provider accepted it
"""

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct


class NotificationState(StrEnum):
    PENDING = "PENDING"
    SENDING = "SENDING"
    IN_DOUBT = "IN_DOUBT"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"
    FAILED = "FAILED"


# Not yet known to be sent or failed.
UNSETTLED = (NotificationState.PENDING, NotificationState.SENDING, NotificationState.IN_DOUBT)


class Policy(StrEnum):
    """What to do with a message in doubt that the provider does not list."""

    ASK = "ask"  # believe the provider after the quarantine, and send again
    AT_MOST_ONCE = "at_most_once"  # never send again: the message is FAILED after the quarantine
    AT_LEAST_ONCE = "at_least_once"  # send again without the quarantine: the person may get it twice
    HOLD = "hold"  # leave it in doubt until an operator resolves it


class Resolution(StrEnum):
    """What an operator decides about a message in doubt."""

    SENT = "sent"  # the operator knows that the person has it
    SEND_AGAIN = "send-again"
    GIVE_UP = "give-up"


class Notification(Struct, frozen=True):
    """A row of the ledger as it is first written. (event_id, person_id, channel) is unique."""

    id: UUID
    event_id: UUID
    event_type: str
    labour_id: UUID
    person_id: UUID
    person_name: str
    phone: str
    body: str
    segments: int
    channel: str = "sms"


class Lease(NamedTuple):
    """The right to send a message once. The call must begin before `call_before`, in seconds of `ledger.clock()`."""

    id: UUID
    attempt: int
    phone: str
    body: str
    suppressed: bool  # the person has opted out
    call_before: float


class InDoubt(NamedTuple):
    """A message to ask the provider about. `quarantine_over` was true before the question was asked."""

    id: UUID
    attempt: int
    phone: str
    event_type: str
    quarantine_over: bool
