"""A message to one person about one event: its states, and what to do while its outcome is unknown.

PENDING ─► SENDING(attempt n) ─► SENT(sid) ─► DELIVERED
 │ ▲          │        │            └───────► UNDELIVERED
 │ │          │        └────────────────────► FAILED        the provider refused it permanently
 │ │          ▼
 │ └────── IN_DOUBT ─► SENT or FAILED                       it is unknown whether the provider accepted it
 │            │
 └────────────┴─────────────────────────────► SUPERSEDED    not sent, because a newer message was taken first

Messages to one person about one labour are sent in the order of their events' sequence. What a message does that is due, by the
state of another message of the same person and labour:

| the other message is                          | and it is older             | and it is newer                             |
|-----------------------------------------------|-----------------------------|---------------------------------------------|
| PENDING and due                               | wait: the other goes first  | go first                                    |
| PENDING, waiting for its next attempt         | go first                    | go first                                    |
| SENDING, its lease has not expired            | wait for the end of the call | superseded                                 |
| SENDING with an expired lease, or IN_DOUBT    | go first                    | superseded                                  |
| SENT, DELIVERED, UNDELIVERED, FAILED, SUPERSEDED | send                     | superseded                                  |

A message in doubt that has a newer one in one of the last three rows is never sent again: once the provider was asked after the
quarantine and does not list it, it is superseded. If a callback shows later that a superseded message was sent, it is SENT.
"""

import hashlib
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
    SUPERSEDED = "SUPERSEDED"


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


def derived_id(cause: UUID, *parts: object) -> UUID:
    """An id that follows from its cause, so that a repetition makes the same one: a UUIDv7 with the time of the cause, and a hash
    of the cause and the parts in place of the random bits.
    """
    digest = hashlib.sha256(":".join(map(str, (cause, *parts))).encode()).digest()
    high, low = int.from_bytes(digest[:2]) >> 4, int.from_bytes(digest[2:10]) >> 2
    return UUID(int=cause.int >> 80 << 80 | 7 << 76 | high << 64 | 2 << 62 | low)


class Notification(Struct, frozen=True):
    """A row of the ledger as it is first written. (event_id, person_id, channel) is unique.

    `sequence` is that of the event: of two messages to one person about one labour, the greater is the newer. A message whose
    event has none has no order.
    """

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
    sequence: int | None = None


class Lease(NamedTuple):
    """The right to send a message once. The call must begin before `call_before`, in seconds of `ledger.clock()`."""

    id: UUID
    attempt: int
    phone: str
    body: str
    suppressed: bool  # the person has opted out
    call_before: float


class InDoubt(NamedTuple):
    """A message to ask the provider about. `quarantine_over` and `newer_taken` were true before the question was asked.

    `newer_taken`: a newer message to the same person about the same labour was taken to be sent, so this one must not be.
    """

    id: UUID
    attempt: int
    phone: str
    event_type: str
    quarantine_over: bool
    newer_taken: bool
