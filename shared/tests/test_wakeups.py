"""A wake-up after a commit makes the relay look at once, and wake-ups survive a lost connection."""

import asyncio
import threading
from contextlib import suppress

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.sample_events import Happened, all_published, emit
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging import relay
from messaging.pubsub import PubSub
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Listener, Waker


async def test_a_wake_up_after_the_commit_wakes_the_relay_long_before_it_would_poll(
    labour_url: str, labour_engine: AsyncEngine, bus: PubSub
) -> None:
    waker = Waker(labour_url, relay.CHANNEL, process="test")
    sleepy = Relay(labour_engine, bus, poll_interval=3600)
    woken = asyncio.Event()

    def wake() -> None:
        sleepy.wake()
        woken.set()

    listener = Listener(labour_url, relay.CHANNEL, wake, process="test")
    stop = asyncio.Event()
    tasks = [asyncio.create_task(task) for task in (waker.run(), listener.run(), sleepy.run(stop))]
    await woken.wait()  # the first one says that the listener is connected
    await emit(lambda: UnitOfWork(labour_engine, source="test", committed=waker.wake), Happened("a", 1))

    await eventually(lambda: all_published(labour_engine), what="published without waiting for the poll")

    stop.set()
    await tasks[2]
    for task in tasks:
        task.cancel()


async def test_wake_ups_continue_after_their_connection_was_cut_at_any_moment(
    postgres: TemporaryServer, labour_url: str
) -> None:
    woken = asyncio.Event()
    waker = Waker(labour_url, relay.CHANNEL, process="cut")
    listener = Listener(labour_url, relay.CHANNEL, woken.set, process="whole")
    tasks = [asyncio.create_task(task) for task in (waker.run(), listener.run())]
    await woken.wait()  # the first one says that the listener is connected

    async def a_wake_up_arrives() -> bool:
        waker.wake()
        return woken.is_set()

    for turns in range(6):
        await eventually(a_wake_up_arrives, what=f"a wake-up arrives on a new connection (after {turns} turns)")
        woken.clear()
        with suppress(TimeoutError):  # it was lost if the connection was still the one that had been cut
            async with asyncio.timeout(1):
                await woken.wait()  # for the last wake-up that was sent: now the waker has nothing to do
        woken.clear()
        cutting = threading.Thread(target=asyncio.run, args=[_cut(postgres, "cut:wake")])
        cutting.start()
        cutting.join()  # without a turn of our loop, on purpose: the server's last message has arrived and is not read yet
        for _ in range(turns):
            await asyncio.sleep(0)

    for task in tasks:
        task.cancel()


async def _cut(postgres: TemporaryServer, process: str) -> None:
    admin = await asyncpg.connect(postgres.dsn())
    await admin.fetch(
        "SELECT pg_terminate_backend(pid, 60000) FROM pg_stat_activity WHERE application_name = $1", process
    )
    await admin.close()
