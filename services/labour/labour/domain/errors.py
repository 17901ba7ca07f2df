"""Every error of the Labour service. `http/problems.py` maps each of them to an HTTP answer.

LabourError
├── NoSuchLabour            no labour with this id that the caller may see
├── NotYours                the caller may see this labour, but may not do this
├── VersionChanged          the labour is no longer in the version that the caller named (If-Match)
├── TooBusy                 every attempt lost against a concurrent change; nothing was changed
├── UnfinishedLabour        a mother has one labour at a time
├── LabourAlreadyBegun
├── LabourAlreadyCompleted
├── LabourNotBegun
├── ContractionRunning      one contraction runs at a time, and none when the labour ends
├── NoSuchContraction
├── ImpossibleTimes         an end before its start, a time in the future, or overlapping contractions
├── NoSuchUpdate
├── AnnouncementSent        an announcement cannot be deleted: it was already sent
├── TooSoon                 announcements have a minimum interval; `wait` is what is left of it
├── InviteInvalid           unknown, expired or revoked; or the person is blocked
├── NotSubscribed
├── NotPossibleNow          the state of the subscriber does not allow this
├── AlreadySubscribed
├── RosterFull
└── NotAPhoneNumber
"""

from datetime import timedelta
from uuid import UUID


class LabourError(Exception):
    """`str(error)` is a sentence for the caller, without personal data. `labour_id` is None if no labour was found."""

    message = ""

    def __init__(self, labour_id: UUID | None = None, message: str | None = None) -> None:
        super().__init__(message or self.message)
        self.labour_id = labour_id


class NoSuchLabour(LabourError):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(labour_id, f"There is no labour {labour_id}.")


class NotYours(LabourError):
    message = "Only the mother may do this."


class VersionChanged(LabourError):
    message = "The labour has changed since you read it. Read it again and decide again."


class TooBusy(LabourError):
    message = "Too many requests are changing this labour at the same time. Nothing was changed; try again."


class UnfinishedLabour(LabourError):
    message = "You have a labour that is not complete yet. Complete it before you plan another."


class LabourAlreadyBegun(LabourError):
    message = "This labour has begun already."


class LabourAlreadyCompleted(LabourError):
    message = "This labour is complete; it cannot change any more."


class LabourNotBegun(LabourError):
    message = "This labour has not begun yet. Begin it first."


class ContractionRunning(LabourError):
    message = "A contraction is still running. End it first."


class NoSuchContraction(LabourError):
    def __init__(self, labour_id: UUID, contraction_id: UUID) -> None:
        super().__init__(labour_id, f"This labour has no contraction {contraction_id}, or it is not running.")


class ImpossibleTimes(LabourError):
    pass


class NoSuchUpdate(LabourError):
    def __init__(self, labour_id: UUID, update_id: UUID) -> None:
        super().__init__(labour_id, f"This labour has no update {update_id}.")


class AnnouncementSent(LabourError):
    message = "This announcement cannot be deleted: it was already sent to all subscribers."


class TooSoon(LabourError):
    def __init__(self, labour_id: UUID, wait: timedelta) -> None:
        super().__init__(labour_id, f"Wait {wait.total_seconds():.0f} s before the next announcement.")
        self.wait = wait


class InviteInvalid(LabourError):
    message = "This invite cannot be used. Ask the mother for a new one."


class NotSubscribed(LabourError):
    def __init__(self, labour_id: UUID | None, subscriber_id: UUID) -> None:
        super().__init__(labour_id, f"There is no subscriber {subscriber_id}.")


class NotPossibleNow(LabourError):
    pass


class AlreadySubscribed(LabourError):
    message = "A subscriber of this labour already has this phone number or account."


class RosterFull(LabourError):
    def __init__(self, labour_id: UUID, limit: int) -> None:
        super().__init__(labour_id, f"A labour has at most {limit} subscribers. Remove one first.")


class NotAPhoneNumber(LabourError):
    """Says what is wrong with the number and never repeats it."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message)
