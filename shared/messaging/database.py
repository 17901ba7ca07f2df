"""Connections to a service's own PostgreSQL, and which of its errors are transient."""

import re
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import asyncpg
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

# SQLSTATEs after which the same statement may succeed: connection failure (08), shutdown or startup (57P), too many connections
# (53300), deadlock and serialization failure (40), lock timeout (55P03).
_TRANSIENT = ("08", "57P", "53300", "40", "55P03")


Statement = tuple[str, Sequence[object]]  # SQL with $1, $2, … and their values


def create_engine(url: str, *, process: str, pool_size: int = 10, connect_timeout: float = 5.0) -> AsyncEngine:
    """READ COMMITTED. Error texts leave out parameters, which hold names and phone numbers.

    `idle_in_transaction_session_timeout` frees the locks of a process that hangs without dying.
    """
    return create_async_engine(
        url,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=0,
        pool_pre_ping=False,
        connect_args={
            "timeout": connect_timeout,
            "server_settings": {"application_name": process, "idle_in_transaction_session_timeout": "60s"},
        },
    )


@asynccontextmanager
async def driver_connection(engine: AsyncEngine) -> AsyncIterator[asyncpg.Connection]:
    """A connection of the engine's pool, as the driver's own object, for statements that run often.

    In Python a statement on it costs a quarter of what it costs through SQLAlchemy. SQLAlchemy's codecs are set on it: JSON
    goes in as text and comes out decoded. A connection that broke or whose transaction was left open is not used again.
    """
    async with engine.connect() as pooled:
        connection: asyncpg.Connection = (await pooled.get_raw_connection()).driver_connection  # type: ignore[assignment]
        try:
            yield connection
        finally:
            if connection.is_closed() or connection.is_in_transaction():
                await pooled.invalidate()


def as_one(statements: Sequence[Statement]) -> Statement:
    """Several statements that return nothing as one: one round trip instead of several. None sees what another one writes."""
    if len(statements) == 1:
        return statements[0]
    parts, values = list[str](), list[object]()
    for statement, arguments in statements:
        parts.append(f"part_{len(parts)} AS ({_renumbered(statement, len(values))})")
        values += arguments
    return f"WITH {', '.join(parts)} SELECT", values


def _renumbered(statement: str, by: int) -> str:
    return re.sub(r"\$(\d+)", lambda number: f"${int(number[1]) + by}", statement)


async def connect_raw(url: str, *, process: str) -> asyncpg.Connection:
    """A connection of its own for LISTEN or NOTIFY, outside any pool."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    return await asyncpg.connect(plain, timeout=5, server_settings={"application_name": process})


def is_transient(error: BaseException) -> bool:
    """True if a retry may help: the database is unavailable, out of connections, or asks to run the transaction again."""
    if isinstance(error, OSError | TimeoutError | PoolExhausted | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return True
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    # While connecting, the driver's own error is raised as it is; later SQLAlchemy wraps it.
    sqlstate = getattr(getattr(error, "orig", error), "sqlstate", None) or ""
    return sqlstate.startswith(_TRANSIENT)


async def ping(engine: AsyncEngine) -> None:
    async with engine.connect() as connection:
        await connection.execute(text("SELECT 1"))
