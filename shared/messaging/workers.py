"""What the worker processes of all services have in common: a relay that also keeps house, and a consumer."""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Protocol

from messaging.consumer import Consumer
from messaging.database import create_engine, ping
from messaging.hints import Hinter, Listener
from messaging.intake import Intake
from messaging.logs import get_logger
from messaging.process import until_ready
from messaging.pubsub import PubSub
from messaging.relay import CHANNEL, Relay
from messaging.retention import Memory, Retention
from messaging.unit_of_work import UnitOfWork, UnitsOfWork

log = get_logger()


class RelaySettings(Memory, Protocol):
    """What every service's settings have for its relay."""

    @property
    def database_url(self) -> str: ...
    @property
    def project_id(self) -> str: ...
    @property
    def relay_poll_seconds(self) -> float: ...


async def run_relay(stop: asyncio.Event, *, name: str, settings: RelaySettings) -> None:
    engine = create_engine(settings.database_url, process=name, pool_size=4)
    retention = Retention.of(engine, settings)
    bus = PubSub(settings.project_id)
    relay = Relay(engine, bus, poll_interval=settings.relay_poll_seconds)
    listener = Listener(settings.database_url, CHANNEL, relay.wake, process=name)
    try:
        if not await until_ready("database", lambda: ping(engine), stop):
            return
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(listener.run()), tasks.create_task(retention.run(stop))]
            await relay.run(stop)
            for task in background:
                task.cancel()
    finally:
        await bus.close()
        await engine.dispose()


async def run_consumer(
    stop: asyncio.Event,
    *,
    name: str,
    database_url: str,
    project_id: str,
    topics: tuple[str, ...],
    create: Callable[[UnitsOfWork, PubSub, Callable[[], None]], Consumer[Any]],
    hints: str = CHANNEL,
    drain: bool = False,
) -> None:
    """`create` is handed units of work, the bus, and what wakes whoever listens on the channel `hints`.

    With `drain` it handles what is there and ends, for scheduled jobs; otherwise it runs until `stop`.
    """
    engine = create_engine(database_url, process=name)
    bus = PubSub(project_id)
    hinter = Hinter(database_url, hints, process=name)
    source = name.partition("-")[0]
    consumer = create(lambda: UnitOfWork(engine, source=source, committed=lambda: None), bus, hinter.hint)
    intake = Intake(bus, [f"{consumer.name}.{topic}" for topic in topics], consumer.handle)
    hinting = asyncio.create_task(hinter.run(), name="hints")
    try:
        if await until_ready("database", lambda: ping(engine), stop) and await until_ready(
            "bus", lambda: bus.ping(topics[0]), stop
        ):
            if drain:
                log.info("drained", handled=await intake.drain())
            else:
                await intake.run(stop)
    finally:
        hinting.cancel()
        with suppress(asyncio.CancelledError):
            await hinting
        await bus.close()
        await engine.dispose()
