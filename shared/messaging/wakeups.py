"""Wake-ups: tell the next process in the path that there is work, so that it need not wait for its next poll.

A NOTIFY inside the writing transaction takes a server-wide lock at commit and more than halves the commit rate. So the writer
asks for a wake-up in memory, after its commit; a background task sends at most one NOTIFY per `INTERVAL` on a connection of its
own. A wake-up may be lost in a crash or a restart of the database, or while a connection is silent: every process that waits for
one also polls.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg

from messaging.backoff import wait
from messaging.database import connect_raw, describe
from messaging.progress import Outage

LISTEN_CHECK = 5.0  # seconds; a connection that only listens would not notice that it is silent
INTERVAL = 0.005  # seconds; coalesced at this rate NOTIFY costs the writers next to nothing


class Waker:
    """Sends wake-ups on one channel. `wake()` returns at once and may be called from anywhere in the loop's thread."""

    def __init__(self, database_url: str, channel: str, *, process: str) -> None:
        self._url, self._channel, self._process = database_url, channel, process
        self._wanted = asyncio.Event()

    def wake(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        async def send(connection: asyncpg.Connection) -> None:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await connection.execute(f"NOTIFY {self._channel}")
                await asyncio.sleep(INTERVAL)

        await _keep_connected(self._url, f"{self._process}:wake", send)


class Listener:
    """Calls `wake` for each wake-up, and once after every (re)connection, since wake-ups in between were lost."""

    def __init__(self, database_url: str, channel: str, wake: Callable[[], None], *, process: str) -> None:
        self._url, self._channel, self._wake, self._process = database_url, channel, wake, process

    async def run(self) -> None:
        async def listen(connection: asyncpg.Connection) -> None:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, lambda *_: self._wake())
            self._wake()
            while not await wait(lost, LISTEN_CHECK):
                await connection.execute("SELECT")  # raises if the connection is silent
            raise ConnectionResetError("the listening connection was closed")

        await _keep_connected(self._url, f"{self._process}:listen", listen)


# The driver raises the last one when the server has said that it ends the session, but has not closed the connection yet.
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


async def _keep_connected(url: str, process: str, use: Callable[[asyncpg.Connection], Any]) -> None:
    outage = Outage("wake-ups", base=0.2)
    while True:
        try:
            connection = await connect_raw(url, process=process)
            outage.over()
            try:
                await use(connection)
            finally:
                with contextlib.suppress(Exception):
                    connection.terminate()
        except _LOST as error:
            await asyncio.sleep(outage.failed(describe(error)))
