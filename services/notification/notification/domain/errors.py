"""Every error of the Notification service. `http/problems.py` maps those that a caller of the API can cause.

NotificationError
├── NoSuchNotification      the ledger has no row with this id
├── NewerTaken              a message must not follow a newer one to the same person about the same labour
├── NotInDoubt              an operator may resolve only a message that is in doubt
└── ProviderSilent          the provider gave no readable answer to a query, so nothing new is known
"""

from uuid import UUID


class NotificationError(Exception):
    pass


class NoSuchNotification(NotificationError):
    def __init__(self, notification_id: UUID) -> None:
        super().__init__(f"There is no notification {notification_id}.")
        self.notification_id = notification_id


class NewerTaken(NotificationError):
    def __init__(self, notification_id: UUID) -> None:
        super().__init__(
            f"Notification {notification_id} cannot be sent again: a newer message to this person about this labour was sent. "
            "Decide that it was sent, or give it up."
        )
        self.notification_id = notification_id


class NotInDoubt(NotificationError):
    def __init__(self, notification_id: UUID, state: str) -> None:
        super().__init__(f"Notification {notification_id} is {state}, not in doubt.")
        self.notification_id, self.state = notification_id, state


class ProviderSilent(NotificationError):
    pass
