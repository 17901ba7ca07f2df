"""Why something is refused, in words for the person who tried.

LabourError
├── LabourAlreadyBegun
├── LabourAlreadyCompleted
├── LabourNotBegun
├── ContractionRunning      one at a time; none may run when the labour ends
├── NoSuchContraction
├── ImpossibleTimes         an end before its start, a time to come, or two contractions at once
├── UnfinishedLabour        one at a time for each mother
├── NotYours                the caller may see this labour, and no more
├── InviteInvalid           no such invite, or expired, or revoked
├── NotPossibleNow
├── NoSuchUpdate
├── AnnouncementSent        what everyone was told cannot be unsaid
├── TooSoon
├── AlreadySubscribed
├── RosterFull
└── NotSubscribed
"""

from datetime import timedelta
from uuid import UUID

ROSTER_LIMIT = 50  # people; each change of state sends that many messages


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


class LabourNotBegun(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "This labour has not begun yet.")


class ContractionRunning(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "A contraction is still running; end it first.")


class NoSuchContraction(LabourError):
    def __init__(self, labour_id: UUID, contraction_id: UUID) -> None:
        super().__init__(labour_id, f"No contraction {contraction_id} in this labour, or it is not running.")


class ImpossibleTimes(LabourError):
    pass


class UnfinishedLabour(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "You have a labour that is not complete yet.")


class NotYours(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "Only the mother may do this.")


class InviteInvalid(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "This invite cannot be used: ask for a new one.")


class NotPossibleNow(LabourError):
    pass


class NoSuchUpdate(LabourError):
    def __init__(self, labour_id: UUID, update_id: UUID) -> None:
        super().__init__(labour_id, f"No update {update_id} in this labour.")


class AnnouncementSent(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, "Everyone was told already; an announcement cannot be unsaid.")


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
