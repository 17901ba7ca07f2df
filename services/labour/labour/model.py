"""The rules of a labour. No database, no HTTP: a transition guards, changes, and records what happened."""

from datetime import datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts import (
    ContractionCorrected,
    ContractionDeleted,
    ContractionEnded,
    ContractionStarted,
    LabourAnnounced,
    LabourBegun,
    LabourCompleted,
    LabourPhaseChanged,
    SubscriberAdded,
    SubscriberRemoved,
)
from labour.contractions import Contraction, Phase, phase_after
from labour.errors import (
    ROSTER_LIMIT,
    AlreadySubscribed,
    ContractionRunning,
    ImpossibleTimes,
    LabourAlreadyBegun,
    LabourAlreadyCompleted,
    LabourNotBegun,
    NoSuchContraction,
    NotSubscribed,
    RosterFull,
    TooSoon,
)
from messaging.aggregate import Aggregate, DomainEvent

ANNOUNCEMENT_COOLDOWN = timedelta(seconds=10)
CLOCK_TOLERANCE = timedelta(minutes=1)  # a client's clock may be ahead of ours


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

    def __init__(self, *, mother_name: str, at: datetime, first_labour: bool = True) -> None:
        self.id: UUID = uuid7()
        self.mother_name, self.first_labour = mother_name, first_labour
        self.phase = Phase.PLANNED
        self.planned_at = at
        self.begun_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.announced_at: datetime | None = None
        self.roster_version = 0
        self.subscribers: list[Subscriber] = []
        self.contractions: list[Contraction] = []
        self.version = 0

    @property
    def event_key(self) -> str:
        return str(self.id)

    def record(self, event: DomainEvent, at: datetime) -> None:
        """Everything that happens is a new version, and of two writers of the same version the later one is refused."""
        super().record(event, at)
        self.version += 1

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
        if any(one.is_running for one in self.contractions):
            raise ContractionRunning(self.id)
        self.phase, self.completed_at = Phase.COMPLETE, at
        self.record(
            LabourCompleted(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, completed_at=at
            ),
            at,
        )

    def push(self, at: datetime) -> None:
        """Only the mother can tell."""
        self._refuse_when_complete()
        if self.phase is Phase.PLANNED:
            raise LabourNotBegun(self.id)
        self._advance(Phase.PUSHING, at)

    def start_contraction(self, started_at: datetime, now: datetime) -> Contraction:
        """The first one begins a planned labour."""
        self._refuse_when_complete()
        if any(one.is_running for one in self.contractions):
            raise ContractionRunning(self.id)
        contraction = Contraction(started_at=started_at)
        self._check_times(contraction, now)
        if self.phase is Phase.PLANNED:
            self.begin(now)
        self.contractions.append(contraction)
        self.record(ContractionStarted(labour_id=self.id, contraction_id=contraction.id, started_at=started_at), now)
        return contraction

    def end_contraction(self, contraction_id: UUID, ended_at: datetime, intensity: int, now: datetime) -> Contraction:
        self._refuse_when_complete()
        contraction = self._contraction(contraction_id)
        if not contraction.is_running:
            raise NoSuchContraction(self.id, contraction_id)
        self._set(contraction, contraction.started_at, ended_at, intensity, now)
        self.record(
            ContractionEnded(
                labour_id=self.id,
                contraction_id=contraction_id,
                started_at=contraction.started_at,
                ended_at=ended_at,
                intensity=intensity,
            ),
            now,
        )
        self._advance(phase_after(self.contractions, self.phase), now)
        return contraction

    def correct_contraction(
        self,
        contraction_id: UUID,
        now: datetime,
        *,
        started_at: datetime | None = None,
        ended_at: datetime | None = None,
        intensity: int | None = None,
    ) -> Contraction:
        """What is None stays. One that still runs can only get another start: ending it is something else."""
        self._refuse_when_complete()
        contraction = self._contraction(contraction_id)
        if contraction.is_running and (ended_at is not None or intensity is not None):
            raise ContractionRunning(self.id)
        self._set(
            contraction,
            started_at or contraction.started_at,
            ended_at or contraction.ended_at,
            contraction.intensity if intensity is None else intensity,
            now,
        )
        self.record(
            ContractionCorrected(
                labour_id=self.id,
                contraction_id=contraction_id,
                started_at=contraction.started_at,
                ended_at=contraction.ended_at,
                intensity=contraction.intensity,
            ),
            now,
        )
        return contraction

    def delete_contraction(self, contraction_id: UUID, now: datetime) -> None:
        self._refuse_when_complete()
        self.contractions.remove(self._contraction(contraction_id))
        self.record(ContractionDeleted(labour_id=self.id, contraction_id=contraction_id), now)

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

    def _contraction(self, contraction_id: UUID) -> Contraction:
        for contraction in self.contractions:
            if contraction.id == contraction_id:
                return contraction
        raise NoSuchContraction(self.id, contraction_id)

    def _set(
        self,
        contraction: Contraction,
        started_at: datetime,
        ended_at: datetime | None,
        intensity: int | None,
        now: datetime,
    ) -> None:
        """All or nothing: what would be impossible leaves the contraction as it was."""
        wanted = Contraction(started_at=started_at)
        wanted.ended_at = ended_at
        self._check_times(wanted, now, instead_of=contraction)
        contraction.started_at, contraction.ended_at, contraction.intensity = started_at, ended_at, intensity

    def _check_times(self, wanted: Contraction, now: datetime, instead_of: Contraction | None = None) -> None:
        if max(wanted.started_at, wanted.ended_at or wanted.started_at) > now + CLOCK_TOLERANCE:
            raise ImpossibleTimes(self.id, "A contraction cannot be in the future.")
        if wanted.ended_at is not None and wanted.ended_at <= wanted.started_at:
            raise ImpossibleTimes(self.id, "A contraction must end after it started.")
        if any(wanted.overlaps(other) for other in self.contractions if other is not instead_of):
            raise ImpossibleTimes(self.id, "This overlaps with another contraction.")

    def _advance(self, phase: Phase, at: datetime) -> None:
        """Forward only; staying where we are is no news."""
        if self.phase.is_before(phase):
            previous, self.phase = self.phase, phase
            self.record(LabourPhaseChanged(labour_id=self.id, phase=phase, previous=previous, changed_at=at), at)
