"""The gauges of what waits: `messaging.backlog`, retention and the dispatcher set them."""

import time
from collections.abc import Callable

from messaging import metrics


class Backlog:
    """Gauges that `messaging.backlog` sets. None is reported before the first reading.

    Between two readings, and while the database does not answer, an age goes on growing and a number stays as it was read: a
    backlog whose database is unavailable must not look empty.
    """

    def __init__(self) -> None:
        self._values = dict[str, Callable[[], float | None]]()

    def set_number(self, name: str, value: int) -> None:
        self._values[name] = lambda: value

    def set_age(self, name: str, seconds: float | None) -> None:
        """None if nothing waits."""
        since = time.monotonic() - (seconds or 0.0)
        self._values[name] = (lambda: 0.0) if seconds is None else (lambda: time.monotonic() - since)

    def gauge(self, name: str, unit: str, description: str) -> None:
        metrics.gauge(name, unit, description, lambda: self._values.get(name, lambda: None)())


backlog = Backlog()
backlog.gauge(
    "outbox.oldest_waiting", "s", "Age of the oldest event that the relay has not published; 0 if none waits."
)
backlog.gauge("outbox.waiting", "", "Events to publish, up to 10,000.")
backlog.gauge("outbox.parked", "", "Events that the bus rejects and that hold up their labour, up to 10,000.")
backlog.gauge("notification.oldest_pending", "s", "Age of the oldest message that is due and was not taken; 0 if none.")
backlog.gauge("notification.pending", "", "Messages to send, up to 10,000 of each priority.")
backlog.gauge("notification.in_doubt", "", "Messages whose outcome is unknown, up to 10,000.")
backlog.gauge("notification.oldest_in_doubt", "s", "Age of the message that has been in doubt for longest; 0 if none.")
backlog.gauge(
    "retention.undone", "", "1 if the last run of retention left rows that it had to delete: put off, or a wrong clock."
)
