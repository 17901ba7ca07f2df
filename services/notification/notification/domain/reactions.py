"""What the service does about an event: a pure function of the event and the roster of its labour.

An event that notifies people names the roster version it was made under. Those who were members at that version are notified:
a person added later is not, and a person removed earlier is not. If the local roster is behind that version, the event is early;
the consumer returns it to the bus and gets it again later.
"""

from collections.abc import Sequence
from uuid import UUID

from msgspec import Struct

from contracts.events import Event, LabourAnnounced, LabourBegun, LabourCompletedV2, SubscriberAdded, SubscriberRemoved
from contracts.ids import derived_id
from notification.domain import wording
from notification.domain.notification import Notification
from notification.domain.roster import Member, Roster

TOPICS = tuple(
    event.type for event in (SubscriberAdded, SubscriberRemoved, LabourBegun, LabourAnnounced, LabourCompletedV2)
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
        case LabourBegun() | LabourAnnounced() | LabourCompletedV2():
            members = roster.members_at(event.roster_version)
            if members is None:
                return Reaction(roster, early=True)
            return Reaction(roster, _notifications(event_id, sequence, event, members))
        case _:
            raise TypeError(f"no reaction to {event.type}: remove it from TOPICS or add a case here")


def _notifications(
    event_id: UUID,
    sequence: int | None,
    event: LabourBegun | LabourAnnounced | LabourCompletedV2,
    members: tuple[Member, ...],
) -> list[Notification]:
    """One message to each member. Their texts differ in the reference only, so the text is written once. The ids follow from the
    event: after a restore, a replay makes the same ids, and the provider can be asked about them.
    """
    announced = event.text if isinstance(event, LabourAnnounced) else ""
    baby = event.baby_name if isinstance(event, LabourCompletedV2) else None
    draft = wording.draft(event.type, mother_name=event.mother_name, text=announced, baby_name=baby)
    return [
        Notification(
            id=(notification_id := derived_id(event_id, member.person_id)),
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
