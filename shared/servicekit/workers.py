"""The worker processes that every service has: a relay, which also runs the retention, and a consumer."""

import asyncio
from collections.abc import Callable
from typing import Any

from structlog import get_logger

from messaging import metrics
from messaging.backlog import read_outbox, watch_backlog
from messaging.consumer import Consumer
from messaging.database import create_engine, ping
from messaging.limits import MAINTENANCE
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from messaging.relay import CHANNEL, Relay
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from messaging.wakeups import Listener, Waker
from servicekit.process import background, until_ready, watch_database
from servicekit.worker_settings import RelaySettings

log = get_logger()


async def run_relay(stop: asyncio.Event, *, name: str, settings: RelaySettings, topics: tuple[str, ...]) -> None:
    """`topics` are those of all events that the service records. The relay does not start before the bus has them: an event
    without a topic would hold up all later events of its labour, and nothing would show why.
    """
    engine = create_engine(settings.database_url, process=name, pool_size=4)
    long_work = create_engine(settings.database_url, process=f"{name}:retention", pool_size=1, limits=MAINTENANCE)
    retention = Retention.of(long_work, settings)
    bus = PubSub(settings.project_id)
    relay = Relay(engine, bus, poll_interval=settings.relay_poll_seconds)
    metrics.relay_starts(topics)
    listener = Listener(settings.database_url, CHANNEL, relay.wake, process=name)
    try:
        if not await until_ready("database", lambda: ping(engine), stop):
            return
        if not await until_ready("bus", lambda: bus.require_topics(topics), stop):
            return
        pings, backlog = watch_database(engine, long_work), watch_backlog(engine, read_outbox)
        async with background(listener.run(), retention.run(stop), pings, backlog):
            await relay.run(stop)
    finally:
        await bus.close()
        await engine.dispose()
        await long_work.dispose()


async def run_consumer(
    stop: asyncio.Event,
    *,
    name: str,
    database_url: str,
    project_id: str,
    topics: tuple[str, ...],
    create: Callable[[UnitsOfWork, PubSub, Callable[[], None]], Consumer[Any]],
    wakes: str = CHANNEL,
    drain: bool = False,
) -> None:
    """`create` gets the units of work, the bus, and a function that wakes the process listening on the channel `wakes`.

    With `drain` it handles the waiting messages and returns, for scheduled jobs; otherwise it runs until `stop`.
    """
    engine = create_engine(database_url, process=name, pool_size=4)
    bus = PubSub(project_id)
    waker = Waker(database_url, wakes, process=name)
    source = name.partition("-")[0]
    consumer = create(lambda: UnitOfWork(engine, source=source, committed=lambda: None), bus, waker.wake)
    receiver = Receiver(bus, [f"{consumer.name}.{topic}" for topic in topics], consumer.handle)
    try:
        async with background(waker.run(), watch_database(engine)):
            if await until_ready("database", lambda: ping(engine), stop) and await until_ready(
                "bus", lambda: bus.ping(topics[0]), stop
            ):
                if drain:
                    log.info("drained", handled=await receiver.drain())
                else:
                    await receiver.run(stop)
    finally:
        await bus.close()
        await engine.dispose()
