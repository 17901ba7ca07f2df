"""What the service does about an event: a pure function of the event and the roster of its labour.

An event that notifies people names the roster version it was made under. Those who were members at that version are notified:
a person added later is not, and a person removed earlier is not. If the local roster is behind that version, the event is early;
the consumer returns it to the bus and gets it again later.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourAnnounced, LabourBegun, LabourCompleted, SubscriberAdded, SubscriberRemoved
from notification.domain import wording
from notification.domain.notification import Notification
from notification.domain.roster import Member, Roster

TOPICS = tuple(
    event.type for event in (SubscriberAdded, SubscriberRemoved, LabourBegun, LabourAnnounced, LabourCompleted)
)


class Reaction(Struct, frozen=True):
    """The roster after the event and the messages to send. An `early` event changes nothing and must be delivered again."""

    roster: Roster
    notifications: Sequence[Notification] = ()
    early: bool = False


def react(event_id: UUID, event: Event, roster: Roster, sequence: int | None = None) -> Reaction:
    """`sequence` is that of the event's envelope."""
    match event:
        case SubscriberAdded() | SubscriberRemoved():
            changed = roster.apply(event)
            return Reaction(roster, early=True) if changed is None else Reaction(changed)
        case LabourBegun() | LabourAnnounced() | LabourCompleted():
            members = roster.members_at(event.roster_version)
            if members is None:
                return Reaction(roster, early=True)
            return Reaction(roster, _notifications(event_id, sequence, event, members))
        case _:
            raise TypeError(f"no reaction to {event.type}: remove it from TOPICS or add a case here")


def _notifications(
    event_id: UUID,
    sequence: int | None,
    event: LabourBegun | LabourAnnounced | LabourCompleted,
    members: tuple[Member, ...],
) -> list[Notification]:
    """The text is worded once for all of them; only the reference differs."""
    announced = event.text if isinstance(event, LabourAnnounced) else ""
    draft = wording.draft(event.type, mother_name=event.mother_name, text=announced)
    return [
        Notification(
            id=(notification_id := uuid7()),
            event_id=event_id,
            event_type=event.type,
            labour_id=event.labour_id,
            person_id=member.person_id,
            person_name=member.name,
            phone=member.phone,
            body=draft.to(notification_id),
            segments=draft.segments,
            sequence=sequence,
        )
        for member in members
    ]
