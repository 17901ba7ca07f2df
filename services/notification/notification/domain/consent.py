"""Consent: a number gets only one text, which asks its owner, until the owner says YES.

             ┌──── STOP ─────┐
             │               ▼
(none) ─► ASKED ─ YES ─► GRANTED ─ STOP ─► REFUSED        consent belongs to the number, across labours
   │         ▲               ▲                 │  ▲
   │         └ after 30 days └──── YES, START ─┘  │       an ASKED number is asked again, if it is needed;
   │           or 1 day                           │       after 1 day if the question did not arrive
   └───────────────────────── STOP ───────────────┘       a YES of a number that was never asked changes nothing

What happens to a message, by the consent of its number:

ASKED     it is AWAITING_CONSENT. On YES the newest message about each labour goes to the queue, if the person is still on
          the list and the message is not too old. The other messages are settled with their reason.
GRANTED   it goes to the queue.
REFUSED   it goes to the queue, too: the dispatcher reads the consent once more when it takes a message, and fails it
          without a call.

The decision is a pure function of the events, the rosters and the consents. Who may be asked now is decided by the database
(`delivery/consents.py`), because two consumers may want to ask the same number at the same time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from enum import StrEnum
from typing import NamedTuple
from uuid import UUID

from contracts.events import Event, SubscriberAdded
from contracts.ids import derived_id
from notification.domain import wording
from notification.domain.notification import CONSENT_REQUESTED, Notification

OPTED_OUT = "the person has opted out of messages"
REMOVED = "the person was removed from the list before they agreed"
TOO_LATE = "the person did not agree in time"
NEWER_WAITS = "a newer message to this person is sent instead"


class Mode(StrEnum):
    ASSUMED = "assumed"  # every number has agreed; for local runs
    REQUIRED = "required"


class ConsentState(StrEnum):
    ASKED = "ASKED"
    GRANTED = "GRANTED"
    REFUSED = "REFUSED"


class Consents(NamedTuple):
    """The consent of each number, and the numbers to which this transaction has to send the question."""

    states: Mapping[str, ConsentState]
    ask: Collection[str]


class Contact(NamedTuple):
    """A person to whom an event causes a message, now or later, with what the question for consent needs."""

    event_id: UUID
    labour_id: UUID
    person_id: UUID
    person_name: str
    phone: str
    mother_name: str
    traceparent: str | None = None  # the trace context of the event


class Decided(NamedTuple):
    pending: list[Notification]
    waiting: list[Notification]


def contacts(
    event_id: UUID, event: Event, notifications: Iterable[Notification], traceparent: str | None = None
) -> list[Contact]:
    """The person who was added, or the recipients of the messages. A question beside a message has a derived event id, because
    the ledger has one row for each event and person.
    """
    if isinstance(event, SubscriberAdded):
        mother = event.mother_name or ""
        return [Contact(event_id, event.labour_id, event.person_id, event.name, event.phone, mother, traceparent)]
    mother = getattr(event, "mother_name", "")
    cause = derived_id(event_id, CONSENT_REQUESTED)
    return [
        Contact(cause, one.labour_id, one.person_id, one.person_name, one.phone, mother, traceparent)
        for one in notifications
    ]


def decide(notifications: Iterable[Notification], known: Sequence[Contact], consents: Consents) -> Decided:
    """The first contact with a number that is to be asked gets the question; it is one of the pending messages."""
    pending, waiting = list[Notification](), list[Notification]()
    for one in notifications:
        (waiting if consents.states[one.phone] is ConsentState.ASKED else pending).append(one)
    first = {contact.phone: contact for contact in reversed(known)}
    return Decided([*(_question(first[phone]) for phone in consents.ask), *pending], waiting)


def _question(to: Contact) -> Notification:
    """The question to a person. It has no sequence, so it has no order among the messages about the labour."""
    draft = wording.draft(CONSENT_REQUESTED, mother_name=to.mother_name)
    notification_id = derived_id(to.event_id, to.person_id)
    return Notification(
        id=notification_id,
        event_id=to.event_id,
        event_type=CONSENT_REQUESTED,
        labour_id=to.labour_id,
        person_id=to.person_id,
        person_name=to.person_name,
        phone=to.phone,
        body=draft.to(notification_id),
        segments=draft.segments,
        traceparent=to.traceparent,
    )
