"""The rules of a labour. No database, no HTTP: a transition guards, changes, and records what happened."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7

from contracts.events import (
    ContractionCorrected,
    ContractionDeleted,
    ContractionEnded,
    ContractionStarted,
    LabourAnnounced,
    LabourBegun,
    LabourCompleted,
    LabourPhaseChanged,
    LabourPlanned,
    LabourStatusPosted,
    LabourStatusRemoved,
)
from labour.domain.contraction import Contraction, Phase, phase_after
from labour.domain.errors import (
    AnnouncementSent,
    ContractionRunning,
    ImpossibleTimes,
    LabourAlreadyBegun,
    LabourAlreadyCompleted,
    LabourNotBegun,
    NoSuchContraction,
    TooSoon,
)
from labour.domain.subscriber import Invite, People, Subscriber

ANNOUNCEMENT_COOLDOWN = timedelta(seconds=10)
CLOCK_TOLERANCE = timedelta(minutes=1)  # a client's clock may be ahead of ours


class UpdateKind(StrEnum):
    ANNOUNCEMENT = "announcement"  # told to everyone, and so never unsaid
    STATUS = "status"  # for those who look
    PRIVATE = "private"  # never leaves the mother


class Update:
    def __init__(self, *, labour_id: UUID, kind: UpdateKind, text: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.labour_id, self.kind, self.text, self.posted_at = labour_id, kind, text, at


class Labour(People):
    """One labour of one mother: its course, what she says about it, and who may be told (`People`)."""

    def __init__(self, *, mother_id: str, mother_name: str, at: datetime, first_labour: bool = True) -> None:
        self.id: UUID = uuid7()
        self.mother_id, self.mother_name, self.first_labour = mother_id, mother_name, first_labour
        self.phase = Phase.PLANNED
        self.planned_at = at
        self.begun_at: datetime | None = None
        self.completed_at: datetime | None = None
        self.announced_at: datetime | None = None
        self.notes: str | None = None
        self.roster_version = 0
        self.subscribers: list[Subscriber] = []
        self.contractions: list[Contraction] = []
        self.invites: list[Invite] = []
        self.version = 0
        self.record(
            LabourPlanned(labour_id=self.id, mother_name=mother_name, first_labour=first_labour, planned_at=at), at
        )

    @property
    def event_key(self) -> str:
        return str(self.id)

    def begin(self, at: datetime) -> None:
        self.refuse_when_complete()
        if self.phase is not Phase.PLANNED:
            raise LabourAlreadyBegun(self.id)
        self.phase, self.begun_at = Phase.EARLY, at
        self.record(
            LabourBegun(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, begun_at=at
            ),
            at,
        )

    def complete(self, at: datetime, notes: str | None = None) -> None:
        """Allowed from any phase: a baby does not wait for anyone to press `begin`. The notes are the mother's own."""
        self.refuse_when_complete()
        if any(one.is_running for one in self.contractions):
            raise ContractionRunning(self.id)
        self.phase, self.completed_at, self.notes = Phase.COMPLETE, at, notes
        self.record(
            LabourCompleted(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, completed_at=at
            ),
            at,
        )

    def push(self, at: datetime) -> None:
        """Only the mother can tell."""
        self.refuse_when_complete()
        if self.phase is Phase.PLANNED:
            raise LabourNotBegun(self.id)
        self._advance(Phase.PUSHING, at)

    def start_contraction(self, started_at: datetime, now: datetime) -> Contraction:
        """The first one begins a planned labour."""
        self.refuse_when_complete()
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
        self.refuse_when_complete()
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
        self.refuse_when_complete()
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
        self.refuse_when_complete()
        self.contractions.remove(self._contraction(contraction_id))
        self.record(ContractionDeleted(labour_id=self.id, contraction_id=contraction_id), now)

    def post(self, kind: UpdateKind, text: str, at: datetime) -> Update:
        """A private note is no event: it never leaves this service."""
        self.refuse_when_complete()
        update = Update(labour_id=self.id, kind=kind, text=text, at=at)
        match kind:
            case UpdateKind.ANNOUNCEMENT:
                self._announce(text, at)
            case UpdateKind.STATUS:
                self.record(LabourStatusPosted(labour_id=self.id, update_id=update.id, text=text), at)
            case UpdateKind.PRIVATE:
                pass
        return update

    def take_back(self, update: Update, at: datetime) -> None:
        match update.kind:
            case UpdateKind.ANNOUNCEMENT:
                raise AnnouncementSent(self.id)
            case UpdateKind.STATUS:
                self.record(LabourStatusRemoved(labour_id=self.id, update_id=update.id), at)
            case UpdateKind.PRIVATE:
                pass

    def _announce(self, text: str, at: datetime) -> None:
        if self.announced_at and (wait := self.announced_at + ANNOUNCEMENT_COOLDOWN - at) > timedelta(0):
            raise TooSoon(self.id, wait)
        self.announced_at = at
        self.record(
            LabourAnnounced(
                labour_id=self.id, roster_version=self.roster_version, mother_name=self.mother_name, text=text
            ),
            at,
        )

    def refuse_when_complete(self) -> None:
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
