"""Our relay drains a filled outbox."""

import asyncio
import time
from collections.abc import Sequence
from typing import Any

from e2e.experiments.bench.program import Stopwatch
from messaging.bus import Outgoing
from messaging.database import create_engine, ping
from messaging.pubsub import PubSub
from messaging.relay import Relay


class CountingBus:
    """The bus, and when it had accepted how many messages. Sets `done` at `count`."""

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


async def measure(*, url: str, project: str, count: int, polls: int = 0) -> dict[str, Any]:
    """Publish and mark `count` rows. `curve` is how many were published after how many seconds.

    With `polls`, also the seconds of a pass over an outbox in which nothing is due, as a median of that many.
    """
    engine = create_engine(url, process="bench", pool_size=4)
    bus = PubSub(project)
    counting, stop = CountingBus(bus, count), asyncio.Event()
    relay = Relay(engine, counting)
    await ping(engine)  # connects
    watch = Stopwatch()
    if count:
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
    await bus.close()
    await engine.dispose()
    return result


async def idle_poll(relay: Relay, polls: int) -> float:
    taken = list[float]()
    for _ in range(polls):
        started = time.perf_counter()
        await relay.run_once()
        taken.append(time.perf_counter() - started)
    return sorted(taken)[polls // 2] if taken else 0.0
