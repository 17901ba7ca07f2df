"""The errors of this package.

MessagingError
├── BusError
│   ├── BusUnavailable        no answer, or too late: a transient error, retry
│   │   ├── TopicUnusable     the bus has no such topic or denies access to it: retry, the message is not at fault
│   │   └── SubscriptionPushed   the bus pushes the messages of this subscription: nothing to pull until that is changed
│   └── PublishRejected       the bus refused this message: an unchanged retry will fail too
├── LockHeld                  another transaction holds the advisory lock that a unit of work begins with
├── Stale                     another transaction has changed the aggregate since it was loaded
├── Undecodable               a message that is not a valid event; `reason` is stable, `detail` is a sentence
├── ReactionsFailed           the reaction to a batch knows which of its events have failed: `errors`, by event id
├── ClockWrong                the clock of this process is far from the database's: it must delete nothing
└── SettingsError             invalid settings: the process must not start
    └── RetentionTooShort     claims would be deleted while a replay can still publish their events
"""

from collections.abc import Mapping
from uuid import UUID


class MessagingError(Exception):
    pass


class BusError(MessagingError):
    pass


class BusUnavailable(BusError):
    pass


class TopicUnusable(BusUnavailable):
    pass


class SubscriptionPushed(BusUnavailable):
    pass


class PublishRejected(BusError):
    pass


class LockHeld(MessagingError):
    pass


class Stale(MessagingError):
    pass


class Undecodable(MessagingError):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class ReactionsFailed(MessagingError):
    def __init__(self, errors: Mapping[UUID, Exception]) -> None:
        super().__init__(f"the reaction to {len(errors)} events of the batch failed")
        self.errors = errors


class ClockWrong(MessagingError):
    pass


class SettingsError(MessagingError):
    pass


class RetentionTooShort(SettingsError):
    pass
