"""The two consumers of the Labour service: their names, their topics and their reactions.

`labour` takes `notification.*` events, `statistics` takes `contraction.*` and `labour.*` events. Claims are kept by consumer, so
an event that several consumers take has its effect once for each of them.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from contracts.events import Event
from contracts.registry import UnknownEvent, WrongSchema, decode
from labour.application import statistics, told
from labour.domain.statistics import TOPICS as STATISTICS_TOPICS
from messaging.bus import Publisher
from messaging.consumer import Consumer, React, Received, decoder
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

NAME = "labour"
STATISTICS = "statistics"


def create_consumer(units_of_work: UnitsOfWork, publisher: Publisher, wake: Callable[[], None]) -> Consumer[Event]:
    """`wake` is called after each commit, so that clients who follow a labour live see the new status."""

    async def react_and_wake(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        uow.after_commit(wake)
        return await told.react(uow, events)

    return _consumer(NAME, told.TOPICS, react_and_wake, units_of_work, publisher)


def create_statistics_consumer(
    units_of_work: UnitsOfWork, publisher: Publisher, _: Callable[[], None]
) -> Consumer[Event]:
    return _consumer(STATISTICS, STATISTICS_TOPICS, statistics.react_to_batch, units_of_work, publisher)


def _consumer(
    name: str, topics: Collection[str], react: React[Event], units_of_work: UnitsOfWork, publisher: Publisher
) -> Consumer[Event]:
    return Consumer(
        name,
        units_of_work=units_of_work,
        decode=decoder(topics, decode, {UnknownEvent: "unknown-version", WrongSchema: "wrong-schema"}),
        react=react,
        publisher=publisher,
    )
