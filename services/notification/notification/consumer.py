"""How this service consumes: its name, its subscriptions, and how a message becomes one of its events."""

from collections.abc import Callable

import contracts
from contracts import Event, UnknownEvent, WrongSchema
from messaging.consumer import Consumer
from messaging.envelope import Envelope
from messaging.errors import Undecodable
from messaging.relay import Publisher
from messaging.unit_of_work import UnitsOfWork
from notification.reactions import TOPICS
from notification.roster import reaction

NAME = "notification"
SUBSCRIPTIONS = tuple(f"{NAME}.{topic}" for topic in TOPICS)


def decode(envelope: Envelope) -> Event:
    if envelope.type not in TOPICS:
        raise Undecodable("unknown-type", f"{NAME} does not react to this event type")
    try:
        return contracts.decode(envelope.type, envelope.version, envelope.data)
    except UnknownEvent as error:
        raise Undecodable("unknown-version", str(error)) from None
    except WrongSchema as error:
        raise Undecodable("wrong-schema", str(error)) from None


def create_consumer(
    units_of_work: UnitsOfWork, publisher: Publisher, wake_dispatcher: Callable[[], None]
) -> Consumer[Event]:
    return Consumer(
        NAME, units_of_work=units_of_work, decode=decode, react=reaction(wake_dispatcher), publisher=publisher
    )
