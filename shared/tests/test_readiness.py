"""Whether a process is ready is asked on one connection, which nothing else uses."""

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from servicekit.readiness import Readiness

CONNECTIONS = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'probe'"


async def test_many_questions_share_one_connection_and_a_broken_one_is_replaced(
    labour_url: str, labour_engine: AsyncEngine
) -> None:
    async def pids() -> list[int]:
        async with labour_engine.connect() as connection:
            return [pid for [pid] in await connection.execute(text(CONNECTIONS))]

    readiness = Readiness(labour_url, process="probe")
    try:
        await asyncio.gather(*(readiness.check() for _ in range(50)))
        await readiness.check()
        [first] = await pids()
        async with labour_engine.connect() as connection:
            await connection.execute(text(f"SELECT pg_terminate_backend({first}, 60000)"))

        await readiness.check()

        [second] = await pids()
        assert second != first
    finally:
        readiness.close()
