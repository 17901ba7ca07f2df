"""The roster of a labour: who is notified of its events.

A roster is built from `subscriber.*` events. Each of them has the next `roster_version` of its labour, without gaps, and is
applied only on top of the version before it. A member is never deleted: the versions at which a person was added and removed
stay, so the members at any earlier version are known. So a roster does not depend on the order in which the bus delivers.
"""

from uuid import UUID

from msgspec import Struct
from msgspec.structs import replace

from contracts.events import SubscriberAdded, SubscriberRemoved

RosterChange = SubscriberAdded | SubscriberRemoved


class Member(Struct, frozen=True):
    person_id: UUID
    name: str
    phone: str
    added_version: int
    removed_version: int | None = None

    def was_on(self, version: int) -> bool:
        return self.added_version <= version and (self.removed_version is None or self.removed_version > version)


class Roster(Struct, frozen=True):
    labour_id: UUID
    version: int = 0
    members: tuple[Member, ...] = ()

    def members_at(self, version: int) -> tuple[Member, ...] | None:
        """The members at a version; None if the roster has not reached it yet."""
        if self.version < version:
            return None
        return tuple(member for member in self.members if member.was_on(version))

    def apply(self, change: RosterChange) -> "Roster | None":
        """The roster after `change`, or None if a change before it is missing."""
        if self.version < change.roster_version - 1:
            return None
        if self.version >= change.roster_version:
            return self  # already applied; possible only after retention has deleted the claim of the event
        match change:
            case SubscriberAdded():
                added = Member(change.person_id, change.name, change.phone, added_version=change.roster_version)
                members = (*self.members, added)
            case SubscriberRemoved():
                members = tuple(
                    replace(member, removed_version=change.roster_version)
                    if member.person_id == change.person_id and member.removed_version is None
                    else member
                    for member in self.members
                )
        return replace(self, version=change.roster_version, members=members)
