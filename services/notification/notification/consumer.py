"""The consumer of the Notification service: its name, its topics, and its reaction to `labour.*` and `subscriber.*` events."""

from collections.abc import Callable
from functools import partial

from contracts.events import Event
from contracts.registry import UnknownEvent, WrongSchema, decode
from messaging.bus import Publisher
from messaging.consumer import Consumer, decoder
from messaging.unit_of_work import UnitsOfWork
from notification.application.batch_reaction import react_to_batch
from notification.domain.consent import Mode
from notification.domain.notification import MOST_WAITING
from notification.domain.reactions import TOPICS

NAME = "notification"


def create_consumer(
    units_of_work: UnitsOfWork,
    publisher: Publisher,
    wake_dispatcher: Callable[[], None],
    *,
    consent: Mode = Mode.ASSUMED,
    most_waiting: int = MOST_WAITING,
) -> Consumer[Event]:
    """`wake_dispatcher` is called after each commit that leaves something to send. `most_waiting` announcements of one labour
    may wait.
    """
    return Consumer(
        NAME,
        units_of_work=units_of_work,
        decode=decoder(TOPICS, decode, {UnknownEvent: "unknown-version", WrongSchema: "wrong-schema"}),
        react=partial(react_to_batch, wake_dispatcher=wake_dispatcher, consent=consent, most_waiting=most_waiting),
        publisher=publisher,
    )
