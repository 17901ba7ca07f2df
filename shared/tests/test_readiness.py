"""The check whether a process is ready has a connection of its own. Every connection has limits."""

import asyncio

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging.database import connect_raw, create_engine
from messaging.limits import HOURS, MAINTENANCE, REQUEST, WORK
from servicekit.http.readiness import Readiness

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


async def test_no_connection_waits_for_a_statement_without_a_limit(labour_url: str) -> None:
    show = "SHOW statement_timeout"
    limits = dict[str, str]()
    for name, kind in {"request": REQUEST, "work": WORK, "maintenance": MAINTENANCE, "migration": HOURS}.items():
        engine = create_engine(labour_url, process="test", limits=kind, connect_timeout=60)
        async with engine.connect() as connection:
            limits[name] = str((await connection.execute(text(show))).scalar())
        await engine.dispose()
    raw = await connect_raw(labour_url, process="test")
    limits["wake-ups and readiness"] = await raw.fetchval(show)
    await raw.close()

    expected = {
        "request": "4s",
        "work": "10s",
        "maintenance": "1min",
        "migration": "6h",
        "wake-ups and readiness": "5s",
    }
    assert limits == expected
