"""A message to one person about one event, its states, and what may be done while its outcome is unknown.

PENDING ─► SENDING(attempt n) ─► SENT(sid) ─► DELIVERED
   ▲          │        │            └───────► UNDELIVERED
   │          │        └────────────────────► FAILED        the provider refused it for good
   │          ▼
   └────── IN_DOUBT ─► SENT                                 nobody knows yet whether it went out
"""

from dataclasses import dataclass
from enum import StrEnum
from uuid import UUID


class State(StrEnum):
    PENDING = "PENDING"
    SENDING = "SENDING"
    IN_DOUBT = "IN_DOUBT"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"
    FAILED = "FAILED"


class Policy(StrEnum):
    """What to do with a message in doubt once the provider has had its time and still does not show it."""

    ASK = "ask"  # believe the answer: not there, so send again
    AT_MOST_ONCE = "at_most_once"  # never send again: rather none than two
    AT_LEAST_ONCE = "at_least_once"  # send again without waiting: rather two than none
    HOLD = "hold"  # a person decides


@dataclass(frozen=True, slots=True)
class Notification:
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


@dataclass(frozen=True, slots=True)
class Lease:
    """The right to send a message, for one attempt, until `call_before` on this process's clock."""

    id: UUID
    attempt: int
    phone: str
    body: str
    suppressed: bool
    call_before: float
