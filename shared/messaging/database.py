"""Connections to a service's own PostgreSQL, and which of its errors are transient."""

import re
from collections.abc import Sequence
from functools import lru_cache

import asyncpg
from sqlalchemy import make_url, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from messaging.clock_offset import compare_on_connect

# SQLSTATEs after which the same statement may succeed: connection failure (08), shutdown or startup (57P), too many connections
# (53300), deadlock and serialization failure (40), lock timeout (55P03).
_TRANSIENT = ("08", "57P", "53300", "40", "55P03")


Statement = tuple[str, Sequence[object]]  # SQL with $1, $2, … and their values


def create_engine(url: str, *, process: str, pool_size: int = 10, connect_timeout: float = 5.0) -> AsyncEngine:
    """READ COMMITTED. Error texts leave out parameters, which hold names and phone numbers.

    `idle_in_transaction_session_timeout` frees the locks of a process that hangs without dying.
    """
    engine = create_async_engine(
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
    compare_on_connect(engine)
    return engine


class driver_connection:  # noqa: N801  (used like a function: `async with driver_connection(engine) as connection`)
    """A connection of the engine's pool, as the driver's own object, for statements that run often.

    In Python a statement on it costs a quarter of what it costs through SQLAlchemy. SQLAlchemy's codecs are set on it: JSON
    goes in as text and comes out decoded. A connection that broke or whose transaction was left open is not used again.
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def __aenter__(self) -> asyncpg.Connection:
        self._pooled = await self._engine.raw_connection()
        self._connection: asyncpg.Connection = self._pooled.driver_connection  # type: ignore[assignment]
        return self._connection

    async def __aexit__(self, *_: object) -> None:
        if self._connection.is_closed() or self._connection.is_in_transaction():
            self._pooled.invalidate()
        self._pooled.close()


def as_one(statements: Sequence[Statement]) -> Statement:
    """Several statements that return nothing as one: one round trip instead of several. None sees what another one writes."""
    if len(statements) == 1:
        return statements[0]
    text = _combined(*((statement, len(values)) for statement, values in statements))
    return text, [value for _, values in statements for value in values]


@lru_cache
def _combined(*statements: tuple[str, int]) -> str:
    parts, before = list[str](), 0
    for statement, count in statements:
        renumbered = re.sub(r"\$(\d+)", lambda number: f"${int(number[1]) + before}", statement)  # noqa: B023
        parts.append(f"part_{len(parts)} AS ({renumbered})")
        before += count
    return f"WITH {', '.join(parts)} SELECT"


async def connect_raw(url: str, *, process: str) -> asyncpg.Connection:
    """A connection of its own for LISTEN or NOTIFY, outside any pool. It does not wait for the disk: a NOTIFY writes nothing."""
    plain = make_url(url).set(drivername="postgresql").render_as_string(hide_password=False)
    settings = {"application_name": process, "synchronous_commit": "off"}
    return await asyncpg.connect(plain, timeout=5, server_settings=settings)


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
