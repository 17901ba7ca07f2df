"""How this service consumes: its name, its events, and what it does about them."""

from collections.abc import Callable

import contracts
from contracts import Event, UnknownEvent, WrongSchema
from messaging.consumer import Consumer, decoder
from messaging.relay import Publisher
from messaging.unit_of_work import UnitsOfWork
from notification.reactions import TOPICS
from notification.roster import reaction

NAME = "notification"


def create_consumer(
    units_of_work: UnitsOfWork, publisher: Publisher, wake_dispatcher: Callable[[], None]
) -> Consumer[Event]:
    return Consumer(
        NAME,
        units_of_work=units_of_work,
        decode=decoder(TOPICS, contracts.decode, {UnknownEvent: "unknown-version", WrongSchema: "wrong-schema"}),
        react=reaction(wake_dispatcher),
        publisher=publisher,
    )
