"""Every error of the Labour service. `http/problems.py` maps each of them to an HTTP answer.

LabourError
├── NoSuchLabour            no labour with this id that the caller may see
│   └── HiddenLabour        there is one, and the caller is a stranger to it: the same to the caller, and a refusal in the log
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
├── TooSoon                 announcements have a minimum interval; `wait` is the rest of it
├── InviteInvalid           unknown, expired or revoked; or the person is blocked
├── NotSubscribed
├── NotPossibleNow          the state of the subscriber does not allow this
├── AlreadySubscribed
├── RosterFull
├── TooMany                 a labour has as many contractions, invites, updates or people as it may have
├── DayUsedUp               the account has used what it may use in a day; `wait` is the rest of the day
├── NotAPhoneNumber
├── PhoneNotSupported       a phone number, but not of a mobile phone in a country that we send to
└── TextNotAllowed          a link or an invisible character in a text that other people read; `field` names it
"""

import math
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


class HiddenLabour(NoSuchLabour):
    pass


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
        seconds = math.ceil(wait.total_seconds())
        super().__init__(labour_id, f"Wait {seconds} s before the next announcement. Each one makes the wait longer.")
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


class TooMany(LabourError):
    """`what` is the plural of a noun, with hyphens."""

    def __init__(self, labour_id: UUID, what: str, limit: int, advice: str) -> None:
        super().__init__(labour_id, f"A labour has at most {limit} {what.replace('-', ' ')}. {advice}")
        self.what = what


_OF_A_DAY = {
    "labours": "plan at most {} labours",
    "people": "add at most {} people",
    "segments": "have at most {} SMS segments sent by announcements (a text of 160 characters to one person is one)",
    "keys": "use at most {} idempotency keys, and send any number of requests without one",
}


class DayUsedUp(LabourError):
    """`what` is a key of the table above."""

    def __init__(self, what: str, limit: int, wait: timedelta) -> None:
        hours = math.ceil(wait.total_seconds() / 3600)
        may = _OF_A_DAY[what].format(limit)
        super().__init__(
            None, f"In one day an account can {may}. Try again within {hours} h, when the next day begins (UTC)."
        )
        self.what, self.wait = what, wait


class NotAPhoneNumber(LabourError):
    """The text is no phone number. The message says what is wrong with it and never repeats it."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message)


class PhoneNotSupported(LabourError):
    """We do not send to this number. The message never repeats it."""

    def __init__(self, message: str) -> None:
        super().__init__(None, message)


class TextNotAllowed(LabourError):
    """A text that other people read has a link or an invisible character. The message never repeats the text."""

    def __init__(self, field: str, problem: str) -> None:
        super().__init__(None, f"{field}: {problem}.")
        self.field, self.problem = field, f"{problem}."
