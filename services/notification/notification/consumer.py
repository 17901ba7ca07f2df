"""How this service consumes: its name, its events, and what it does about them."""

from collections.abc import Callable

from contracts.events import Event
from contracts.registry import UnknownEvent, WrongSchema, decode
from messaging.bus import Publisher
from messaging.consumer import Consumer, decoder
from messaging.unit_of_work import UnitsOfWork
from notification.application.batch_reaction import reaction
from notification.domain.reactions import TOPICS

NAME = "notification"


def create_consumer(
    units_of_work: UnitsOfWork, publisher: Publisher, wake_dispatcher: Callable[[], None]
) -> Consumer[Event]:
    return Consumer(
        NAME,
        units_of_work=units_of_work,
        decode=decoder(TOPICS, decode, {UnknownEvent: "unknown-version", WrongSchema: "wrong-schema"}),
        react=reaction(wake_dispatcher),
        publisher=publisher,
    )
