"""Our relay drains a filled outbox."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

import asyncpg

from e2e.experiments.bench.program import Stopwatch
from e2e.support.databases import connect
from messaging.bus import Outgoing
from messaging.database import create_engine, ping
from messaging.lanes import SETTLE_INTERVAL
from messaging.pubsub import PubSub
from messaging.relay import Relay

SETTLING = 4  # polls: two to settle the last position, one to raise the bounds to it, and one to spare


class CountingBus:
    """The bus, with the times at which it had accepted how many messages. Sets `done` at `count`."""

    def __init__(self, bus: PubSub, count: int) -> None:
        self._bus, self._count, self.accepted = bus, count, 0
        self.curve, self.done = [(time.perf_counter(), 0)], asyncio.Event()

    async def publish(self, topic: str, messages: Sequence[Outgoing]) -> list[str]:
        message_ids = await self._bus.publish(topic, messages)
        self.accepted += len(messages)
        self.curve.append((time.perf_counter(), self.accepted))
        if self.accepted >= self._count:
            self.done.set()
        return message_ids


async def measure(
    *, url: str, project: str, count: int, polls: int = 0, hold: bool = False, passes: int = 0
) -> dict[str, Any]:
    """Publish and mark `count` rows. `curve` is how many were published after how many seconds.

    `hold` holds a transaction open meanwhile, which began before the first row was published. `polls` also takes the time of
    that many passes in which nothing is due (`idle` is their median, in seconds). `passes` makes that many passes instead of
    publishing everything.
    """
    engine = create_engine(url, process="bench", pool_size=4)
    bus = PubSub(project)
    counting, stop = CountingBus(bus, count), asyncio.Event()
    relay = Relay(engine, counting)
    old = await old_transaction(url) if hold else None
    await ping(engine)  # connects
    watch = Stopwatch()
    for _ in range(passes):
        await relay.run_once()
    if count and not passes:
        running = asyncio.create_task(relay.run(stop))
        finished = asyncio.create_task(counting.done.wait())
        await asyncio.wait([running, finished], return_when=asyncio.FIRST_COMPLETED)
        stop.set()
        relay.wake()
        await running
        finished.cancel()
    start = counting.curve[0][0]
    curve = [(seconds - start, accepted) for seconds, accepted in counting.curve]
    result = watch.read(counting.accepted, curve=curve, idle=await idle_poll(relay, polls))
    if old:
        await old.close()
    await bus.close()
    await engine.dispose()
    return result


async def old_transaction(url: str) -> asyncpg.Connection:
    """A connection with a snapshot that keeps every row version from now on, until it is closed."""
    connection = await connect(url)
    await connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()")
    return connection


async def idle_poll(relay: Relay, polls: int) -> float:
    """The median of polls without work, in seconds, after the first ones, in which the lanes settle."""
    for _ in range(SETTLING if polls else 0):
        await relay.run_once()
        await asyncio.sleep(SETTLE_INTERVAL)
    taken = list[float]()
    for _ in range(polls):
        started = time.perf_counter()
        await relay.run_once()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[polls // 2] if taken else 0.0
