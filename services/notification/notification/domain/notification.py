"""A message to one person about one event: its states, and what to do while its outcome is unknown.

AWAITING_CONSENT ─► FAILED or SUPERSEDED                    the owner of the number has not agreed yet (domain/consent.py)
 ▼
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
| PENDING, waiting for its next attempt; AWAITING_CONSENT | go first          | go first                                    |
| SENDING, its lease has not expired            | wait for the end of the call | superseded                                 |
| SENDING with an expired lease, or IN_DOUBT    | go first                    | superseded                                  |
| SENT, DELIVERED, UNDELIVERED, FAILED, SUPERSEDED | send                     | superseded                                  |

A birth that has waited `BIRTH_WAITS` seconds no longer waits for older messages that are PENDING: it goes first, and they are
superseded.

A message in doubt that has a newer one in one of the last three rows is never sent again: once the provider was asked after the
quarantine and does not list it, it is superseded. If a callback shows later that a superseded message was sent, it is SENT.
"""

from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from msgspec import Struct

CONSENT_REQUESTED = "consent.requested"  # the `event_type` of the text that asks for consent


class NotificationState(StrEnum):
    AWAITING_CONSENT = "AWAITING_CONSENT"
    PENDING = "PENDING"
    SENDING = "SENDING"
    IN_DOUBT = "IN_DOUBT"
    SENT = "SENT"
    DELIVERED = "DELIVERED"
    UNDELIVERED = "UNDELIVERED"
    FAILED = "FAILED"
    SUPERSEDED = "SUPERSEDED"


# In the queue of the dispatchers or taken from it, and not yet known to be sent or failed.
UNSETTLED = (NotificationState.PENDING, NotificationState.SENDING, NotificationState.IN_DOUBT)


# Which messages are taken first, by event type: the lowest number. A kind that is not named here, such as a request for consent,
# is between the beginning and the announcements. The index `notification_announced` names the number of announcements.
PRIORITIES = {"labour.completed": 0, "labour.begun": 1, "labour.announced": 3}
OTHER_PRIORITY = 2

TURN_SECONDS = 60  # each message of a labour that waits already moves the turn of the next one back by this
BIRTH_WAITS = 30  # seconds for which a birth waits for older messages to the same person
MOST_WAITING = 500  # announcements of one labour that may wait to be sent
BIRTH_FACTOR = 2  # births are sent up to so many times the limit of a number and day

# Why a message was not sent, in words for the mother.
TOO_MANY_WAITING = "too many announcements of this labour were waiting to be sent"
COUNTRY_NOT_TEXTED = "numbers of this country are not texted"
TOO_MANY_TODAY = "this number has had too many messages today"


class Limits(NamedTuple):
    """What all dispatchers together may send.

    sender                the number whose rate they share
    per_second            calls a second; the bucket holds one second's calls, and at least one
    segments_per_number   SMS segments a day (UTC) to one number, about all labours
    """

    sender: str = ""
    per_second: float = 1e6
    segments_per_number: int = 1_000_000


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
    """A row of the ledger as it is first written. (event_id, person_id, channel) is unique.

    `sequence` is that of the event: of two messages to one person about one labour, the greater is the newer. A message whose
    event has none has no order. `traceparent` is the trace context with which the message goes on.
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
    traceparent: str | None = None


class Origin(NamedTuple):
    """Where a message comes from: the event that it is about, its labour, and its trace context, if it has one."""

    event_id: UUID | None = None
    labour_id: UUID | None = None
    traceparent: str | None = None


class Lease(NamedTuple):
    """The right to send a message once. The call must begin before `call_before`, in seconds of `ledger.clock()`."""

    id: UUID
    attempt: int
    phone: str
    body: str
    suppressed: bool  # the person has opted out
    call_before: float
    origin: Origin = Origin()
    ask_first: bool = False  # it may have been sent before the ledger was restored from a backup


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
    origin: Origin = Origin()
