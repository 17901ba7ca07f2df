"""What we do about an event: a pure function from the event and the roster to what shall be written.

The roster of a labour is built from `subscriber.*` events, each applied only on top of the one before it (`roster_version`
without gaps). An event that tells people names the roster version it was made under; if ours is behind, the event is early
and comes again later. So nothing here needs the bus to keep any order.

Who is told is decided as of that version: somebody who was added later is not, somebody who was removed before never is.
"""

from dataclasses import dataclass, field, replace
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts.events import Event, LabourAnnounced, LabourBegun, LabourCompleted, SubscriberAdded, SubscriberRemoved
from notification.domain import wording
from notification.domain.notification import Notification

TOPICS = tuple(
    event.type for event in (SubscriberAdded, SubscriberRemoved, LabourBegun, LabourAnnounced, LabourCompleted)
)


@dataclass(frozen=True, slots=True)
class Member:
    person_id: UUID
    name: str
    phone: str
    added_version: int
    removed_version: int | None = None

    def was_on(self, version: int) -> bool:
        return self.added_version <= version and (self.removed_version is None or self.removed_version > version)


@dataclass(frozen=True, slots=True)
class Roster:
    labour_id: UUID
    version: int = 0
    members: tuple[Member, ...] = ()


@dataclass(frozen=True, slots=True)
class Decision:
    """`early` means: know more first. Otherwise the roster as it is from now on, and the messages to send."""

    roster: Roster
    early: bool = False
    notifications: tuple[Notification, ...] = field(default=())


def react(event_id: UUID, event: Event, roster: Roster) -> Decision:
    match event:
        case SubscriberAdded() | SubscriberRemoved():
            return _change_roster(event, roster)
        case LabourBegun() | LabourAnnounced() | LabourCompleted():
            if roster.version < event.roster_version:
                return Decision(roster, early=True)
            told = (member for member in roster.members if member.was_on(event.roster_version))
            return Decision(roster, notifications=tuple(_notification(event_id, event, member) for member in told))
        case _:
            raise TypeError(f"nothing here reacts to {event.type}")


def _change_roster(event: SubscriberAdded | SubscriberRemoved, roster: Roster) -> Decision:
    if roster.version >= event.roster_version:
        return Decision(roster)  # applied before; possible only when its claim has been forgotten
    if roster.version < event.roster_version - 1:
        return Decision(roster, early=True)
    match event:
        case SubscriberAdded():
            new = Member(event.person_id, event.name, event.phone, added_version=event.roster_version)
            members = (*roster.members, new)
        case SubscriberRemoved():
            members = tuple(
                replace(member, removed_version=event.roster_version)
                if member.person_id == event.person_id and member.removed_version is None
                else member
                for member in roster.members
            )
    return Decision(replace(roster, version=event.roster_version, members=members))


def _notification(
    event_id: UUID, event: LabourBegun | LabourAnnounced | LabourCompleted, member: Member
) -> Notification:
    notification_id = uuid7()
    said = event.text if isinstance(event, LabourAnnounced) else ""
    body = wording.write(event.type, mother_name=event.mother_name, text=said, notification_id=notification_id)
    return Notification(
        id=notification_id,
        event_id=event_id,
        event_type=event.type,
        labour_id=event.labour_id,
        person_id=member.person_id,
        person_name=member.name,
        phone=member.phone,
        body=body,
        segments=wording.segments(body),
    )
