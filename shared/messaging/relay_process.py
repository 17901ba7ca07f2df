"""What both services' relay processes do: publish, listen for hints, and keep partitions and retention in order."""

import asyncio
from datetime import timedelta

from messaging.database import create_engine, ping
from messaging.hints import Listener
from messaging.process import until_ready
from messaging.pubsub import PubSub
from messaging.relay import CHANNEL, Relay
from messaging.retention import Retention


async def run_relay(
    stop: asyncio.Event,
    *,
    name: str,
    database_url: str,
    project_id: str,
    poll_interval: float,
    retention_days: int,
    replay_horizon_days: int,
) -> None:
    engine = create_engine(database_url, process=name, pool_size=4)
    retention = Retention(
        engine, keep=timedelta(days=retention_days), replay_horizon=timedelta(days=replay_horizon_days)
    )
    bus = PubSub(project_id)
    relay = Relay(engine, bus, poll_interval=poll_interval)
    listener = Listener(database_url, CHANNEL, relay.wake, process=name)
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
