"""The consumer of the Labour service: its name, its topics, and its reaction to `notification.*` events."""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from contracts.events import Event
from contracts.registry import UnknownEvent, WrongSchema, decode
from labour.application.told import TOPICS, react
from messaging.bus import Publisher
from messaging.consumer import Consumer, Received, decoder
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

NAME = "labour"


def create_consumer(units_of_work: UnitsOfWork, publisher: Publisher, wake: Callable[[], None]) -> Consumer[Event]:
    """`wake` is called after each commit, so that clients who follow a labour live see the new status."""

    async def react_and_wake(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        uow.after_commit(wake)
        return await react(uow, events)

    return Consumer(
        NAME,
        units_of_work=units_of_work,
        decode=decoder(TOPICS, decode, {UnknownEvent: "unknown-version", WrongSchema: "wrong-schema"}),
        react=react_and_wake,
        publisher=publisher,
    )
