"""Wakes the process that has work now, without ever being in the way of the one that made it.

A NOTIFY inside the writing transaction takes a server-wide lock at commit and more than halves the commit rate. So the writer
hints after its commit, in memory; a background task sends at most one NOTIFY per `INTERVAL` on a connection of its own. A hint
may be lost (a crash, a restart of the database): whoever waits for one also polls.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any

import asyncpg

from messaging.backoff import Backoff
from messaging.database import connect_raw
from messaging.logs import get_logger

log = get_logger()

INTERVAL = 0.005  # seconds; coalesced at this rate NOTIFY costs the writers next to nothing


class Hinter:
    """Sends hints on one channel. `hint()` returns at once and may be called from anywhere in the loop's thread."""

    def __init__(self, database_url: str, channel: str, *, process: str) -> None:
        self._url, self._channel, self._process = database_url, channel, process
        self._wanted = asyncio.Event()

    def hint(self) -> None:
        self._wanted.set()

    async def run(self) -> None:
        async def send_hints(connection: asyncpg.Connection) -> None:
            while True:
                await self._wanted.wait()
                self._wanted.clear()
                await connection.execute(f"NOTIFY {self._channel}")
                await asyncio.sleep(INTERVAL)

        await _keep_connected(self._url, f"{self._process}:hint", send_hints)


class Listener:
    """Calls `wake` for each hint, and once after every (re)connection, since hints in between were lost."""

    def __init__(self, database_url: str, channel: str, wake: Callable[[], None], *, process: str) -> None:
        self._url, self._channel, self._wake, self._process = database_url, channel, wake, process

    async def run(self) -> None:
        async def listen(connection: asyncpg.Connection) -> None:
            lost = asyncio.Event()
            connection.add_termination_listener(lambda _: lost.set())
            await connection.add_listener(self._channel, lambda *_: self._wake())
            self._wake()
            await lost.wait()
            raise ConnectionResetError("the listening connection was closed")

        await _keep_connected(self._url, f"{self._process}:listen", listen)


# The last is what the driver says when the server's goodbye was read and the end of the connection was not yet.
_LOST = (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


async def _keep_connected(url: str, process: str, use: Callable[[asyncpg.Connection], Any]) -> None:
    backoff = Backoff(base=0.2, cap=5.0)
    while True:
        try:
            connection = await connect_raw(url, process=process)
            backoff.reset()
            try:
                await use(connection)
            finally:
                with contextlib.suppress(Exception):
                    connection.terminate()
        except _LOST as error:
            pause = backoff.next()
            log.warning(
                "hint connection lost", connection=process, error=type(error).__name__, retry_in=round(pause, 2)
            )
            await asyncio.sleep(pause)
