"""Checks whether the database answers, on a connection of its own: a pool that is used up does not make a process unready."""

import asyncio

import asyncpg

from messaging.database import connect_raw

ANSWER_SECONDS = 2.0


class Readiness:
    """The connection is opened by the first check and kept. Concurrent checks share one query."""

    def __init__(self, database_url: str, *, process: str) -> None:
        self._url, self._process = database_url, process
        self._connection: asyncpg.Connection | None = None
        self._asking: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raises if the database does not answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        await asyncio.shield(self._asking)  # a client that gives up does not cancel it for the other ones

    async def _ask(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.execute("SELECT 1", timeout=ANSWER_SECONDS)
                return
            except Exception:
                self.close()  # the connection is broken; a new one shows whether the database is unavailable
        self._connection = await connect_raw(self._url, process=self._process)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
