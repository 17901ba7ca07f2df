"""The rules of a labour. No database, no HTTP: a transition guards, changes, and records what happened.

LabourError
├── LabourAlreadyBegun
├── LabourAlreadyCompleted
├── TooSoon
├── AlreadySubscribed
├── RosterFull
└── NotSubscribed
"""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts import LabourAnnounced, LabourBegun, LabourCompleted, SubscriberAdded, SubscriberRemoved
from messaging.aggregate import Aggregate

ANNOUNCEMENT_COOLDOWN = timedelta(seconds=10)
ROSTER_LIMIT = 50  # people; each change of state sends that many messages


class Phase(StrEnum):
    PLANNED = "planned"
    EARLY = "early"
    COMPLETE = "complete"


class LabourError(Exception):
    def __init__(self, labour_id: UUID, message: str) -> None:
        super().__init__(message)
        self.labour_id = labour_id


class LabourAlreadyBegun(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "This labour has begun already.")


class LabourAlreadyCompleted(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "This labour is complete; it cannot change any more.")


class TooSoon(LabourError):
    def __init__(self, labour_id: UUID, wait: timedelta) -> None:
        super().__init__(labour_id, f"Wait {wait.total_seconds():.0f} s before the next announcement.")
        self.wait = wait


class AlreadySubscribed(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "Somebody with this phone number is subscribed to this labour already.")


class RosterFull(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, f"A labour has at most {ROSTER_LIMIT} subscribers.")


class NotSubscribed(LabourError):
    def __init__(self, labour_id: UUID, subscriber_id: UUID) -> None:
        super().__init__(labour_id, f"No subscriber {subscriber_id} in this labour.")
        self.subscriber_id = subscriber_id


class Subscriber:
    def __init__(self, *, name: str, phone: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.name, self.phone, self.subscribed_at = name, phone, at


class Announcement:
    """Told to everyone, so it cannot be unsaid: there is no way to change or delete one."""

    def __init__(self, *, labour_id: UUID, text: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.labour_id, self.text, self.announced_at = labour_id, text, at


class Labour(Aggregate):
    """`roster_version` counts the changes of the roster. An event that tells people carries the version it was made under."""

    def __init__(self, *, mother_name: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.mother_name = mother_name
        self.phase = Phase.PLANNED
        self.planned_at = at
        self.begun_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.announced_at: datetime | None = None
        self.roster_version = 0
        self.subscribers: list[Subscriber] = []
        self.version = 0

    @property
    def event_key(self) -> str:
        return str(self.id)

    def begin(self, at: datetime) -> None:
        self._refuse_when_complete()
        if self.phase is not Phase.PLANNED:
            raise LabourAlreadyBegun(self.id)
        self.phase, self.begun_at = Phase.EARLY, at
        self.record(
            LabourBegun(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, begun_at=at
            ),
            at,
        )

    def complete(self, at: datetime) -> None:
        """Allowed from any phase: a baby does not wait for anyone to press `begin`."""
        self._refuse_when_complete()
        self.phase, self.completed_at = Phase.COMPLETE, at
        self.record(
            LabourCompleted(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, completed_at=at
            ),
            at,
        )

    def announce(self, text: str, at: datetime) -> Announcement:
        self._refuse_when_complete()
        if self.announced_at and (wait := self.announced_at + ANNOUNCEMENT_COOLDOWN - at) > timedelta(0):
            raise TooSoon(self.id, wait)
        self.announced_at = at
        self.record(
            LabourAnnounced(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, text=text
            ),
            at,
        )
        return Announcement(labour_id=self.id, text=text, at=at)

    def subscribe(self, *, name: str, phone: str, at: datetime) -> Subscriber:
        self._refuse_when_complete()
        if any(subscriber.phone == phone for subscriber in self.subscribers):
            raise AlreadySubscribed(self.id)
        if len(self.subscribers) >= ROSTER_LIMIT:
            raise RosterFull(self.id)
        subscriber = Subscriber(name=name, phone=phone, at=at)
        self.subscribers.append(subscriber)
        self.roster_version += 1
        self.record(
            SubscriberAdded(
                labour_id=self.id,
                roster_version=self.roster_version,
                person_id=subscriber.id,
                name=name,
                phone=phone,
            ),
            at,
        )
        return subscriber

    def unsubscribe(self, subscriber_id: UUID, at: datetime) -> None:
        """Allowed when complete, too: nobody has to stay on a list."""
        subscriber = next((one for one in self.subscribers if one.id == subscriber_id), None)
        if subscriber is None:
            raise NotSubscribed(self.id, subscriber_id)
        self.subscribers.remove(subscriber)
        self.roster_version += 1
        self.record(
            SubscriberRemoved(labour_id=self.id, roster_version=self.roster_version, person_id=subscriber_id), at
        )

    def _refuse_when_complete(self) -> None:
        if self.phase is Phase.COMPLETE:
            raise LabourAlreadyCompleted(self.id)
