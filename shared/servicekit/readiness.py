"""Whether the database answers, asked on a connection of its own: requests that use up the pool do not make a process unready."""

import asyncio

import asyncpg

from messaging.database import connect_raw

ANSWER_SECONDS = 2.0


class Readiness:
    """The connection is opened by the first question and kept. Questions at the same time share one answer."""

    def __init__(self, database_url: str, *, process: str) -> None:
        self._url, self._process = database_url, process
        self._connection: asyncpg.Connection | None = None
        self._asking: asyncio.Task[None] | None = None

    async def check(self) -> None:
        """Raises if the database does not answer."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(lambda asked: asked.cancelled() or asked.exception())
        await asyncio.shield(self._asking)  # a client that gives up does not end the question of the others

    async def _ask(self) -> None:
        if self._connection is not None:
            try:
                await self._connection.execute("SELECT 1", timeout=ANSWER_SECONDS)
                return
            except Exception:
                self.close()  # the connection is broken; a new one tells whether the database is, too
        self._connection = await connect_raw(self._url, process=self._process)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.terminate()
            self._connection = None
