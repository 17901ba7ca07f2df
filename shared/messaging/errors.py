"""What can go wrong, as a tree.

MessagingError
├── BusError
│   ├── BusUnavailable        nobody answered, or too late: wait and try again, nothing is known to be wrong with us
│   └── PublishRejected       the bus said no to this very message: trying again as it is will not help
├── Undecodable               a message that cannot become an event; `reason` is stable, `detail` is for people
└── SettingsError             the environment is wrong; the process must not start
    └── RetentionTooShort     deduplication would forget events that a replay can bring back
"""


class MessagingError(Exception):
    pass


class BusError(MessagingError):
    pass


class BusUnavailable(BusError):
    pass


class PublishRejected(BusError):
    pass


class Undecodable(MessagingError):
    def __init__(self, reason: str, detail: str) -> None:
        super().__init__(f"{reason}: {detail}")
        self.reason, self.detail = reason, detail


class SettingsError(MessagingError):
    pass


class RetentionTooShort(SettingsError):
    pass
