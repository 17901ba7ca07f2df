"""The two ways in which a process connects to its database. `@both` passes each to a test, as `connect`."""

from collections.abc import Awaitable, Callable

import pytest

from messaging.database import connect_raw, create_engine, driver_connection

Connect = Callable[..., Awaitable[str]]
USER = "SELECT current_user"


async def pool(url: str, query: str = USER) -> str:
    engine = create_engine(url, process="test", pool_size=1, connect_timeout=60)
    try:
        async with driver_connection(engine) as connection:
            return str(await connection.fetchval(query))
    finally:
        await engine.dispose()


async def raw(url: str, query: str = USER) -> str:
    connection = await connect_raw(url, process="test")
    try:
        return str(await connection.fetchval(query))
    finally:
        await connection.close()


both = pytest.mark.parametrize("connect", [pool, raw])
