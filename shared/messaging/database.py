"""Connections to a service's own PostgreSQL, and which of its errors are transient.

A connection on which an answer was late is closed and never returned to the pool, and the other connections of the pool are
replaced before they are used again. `messaging.limits` has the limits. `messaging.tls` says how TLS is asked for in the URL, and
`messaging.cloud_sql` how an instance of Cloud SQL is named there.

A transient error is an outage or a conflict, never the fault of a statement: the caller waits and retries without a limit.

| SQLSTATE          | meaning                                                               | transient | new connections |
|-------------------|-----------------------------------------------------------------------|-----------|-----------------|
| 08                | connection failure                                                    | yes       | yes             |
| 25006             | read-only: it is a standby now, or an operator decided so             | yes       | yes             |
| 25P03, 25P04      | the server ended a session: idle in a transaction, or one too long    | yes       | yes             |
| 28                | login refused: a password or pg_hba.conf was changed                  | yes       | yes             |
| 3D000             | the database does not exist: it is being restored                     | yes       | yes             |
| 40                | deadlock, serialization failure                                       | yes       | no              |
| 53                | out of disk (53100), memory (53200) or connections (53300)            | yes       | no              |
| 55006, 55P03      | object in use, lock timeout                                           | yes       | no              |
| 57014             | statement timeout, or cancelled                                       | yes       | no              |
| 57P               | shutdown, crash, startup, dropped database                            | yes       | yes             |
| 58                | system error: I/O, a missing file                                     | yes       | yes             |
| 0A000             | only "cached plan must not change result type", after a migration     | yes       | no              |
| 22, 23, 42, XX, … | wrong values, constraints, wrong statements, corruption               | no        | no              |

Login failures and a missing database count as transient because a restart does not help against them either, and because the
process is reported as unhealthy with the reason while it waits.
"""

import re
import ssl
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from functools import lru_cache, partial
from weakref import WeakKeyDictionary

import asyncpg
from sqlalchemy import URL, Engine, event
from sqlalchemy.engine import ExceptionContext
from sqlalchemy.exc import DBAPIError, DisconnectionError, InvalidRequestError
from sqlalchemy.exc import TimeoutError as PoolExhausted
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine
from sqlalchemy.pool import ConnectionPoolEntry

from messaging import metrics
from messaging.clock_offset import compare_on_connect
from messaging.cloud_sql import ConnectorFailed, find_instance
from messaging.limits import (
    CONNECT_SECONDS,
    GRACE,
    KEEPALIVE_BY_SERVER,
    ROLLBACK_SECONDS,
    WORK,
    LimitedConnection,
    Limits,
)
from messaging.masking import hide_values
from messaging.tls import split_tls

_LOST = ("08", "25006", "25P03", "25P04", "28", "3D000", "57P", "58")
_TRANSIENT = (*_LOST, "40", "53", "55006", "55P03", "57014")
# What the pool raises if `_check_age` refuses two connections in a row: each was lost while another one was being made.
_REFUSED_TWICE = "This connection is closed"
# The first connection of a pool was cut while SQLAlchemy asked the server for its version and schema.
_CUT_AT_ONCE = "This Connection is closed"

Statement = tuple[str, Sequence[object]]  # SQL with $1, $2, … and their values


def opener(url: str) -> tuple[URL, Callable[..., Awaitable[asyncpg.Connection]]]:
    """The URL without our own parameters, and what opens a connection to it: it takes the arguments of the driver's `connect`."""
    if instance := find_instance(url):
        return instance.url, instance.connect
    plain, tls = split_tls(url)
    return plain, partial(asyncpg.connect, ssl=tls)


_lost_at = WeakKeyDictionary[Engine, float]()  # connections that were made before are not used again


def create_engine(
    url: str,
    *,
    process: str,
    pool_size: int = 10,
    limits: Limits = WORK,
    connect_timeout: float = CONNECT_SECONDS,
) -> AsyncEngine:
    """An engine whose transactions are READ COMMITTED. Its errors leave out parameters, which hold names and phone numbers."""
    plain, connect = opener(url)
    engine = create_async_engine(
        plain,
        isolation_level="READ COMMITTED",
        hide_parameters=True,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=limits.pool,
        pool_pre_ping=False,
        connect_args={
            "async_creator_fn": connect,
            "timeout": connect_timeout,
            "command_timeout": limits.statement + GRACE,
            "connection_class": LimitedConnection,
            "server_settings": {
                "application_name": process,
                **KEEPALIVE_BY_SERVER,
                **limits.server_settings(),
            },
        },
    )
    event.listen(engine.sync_engine, "connect", _note_connected)
    event.listen(engine.sync_engine, "checkout", partial(_check_age, engine.sync_engine))
    event.listen(engine.sync_engine, "handle_error", _handle_error)
    compare_on_connect(engine)
    metrics.watch_pool(engine.sync_engine, process)
    return engine


def _note_connected(_: object, record: ConnectionPoolEntry) -> None:
    record.info["connected_at"] = time.monotonic()


def _check_age(engine: Engine, _: object, record: ConnectionPoolEntry, __: object) -> None:
    """Called when a connection is taken from the pool: SQLAlchemy replaces one that may have been lost with another one."""
    if record.info["connected_at"] < _lost_at.get(engine, 0.0):
        raise DisconnectionError
    record.info["taken_at"] = time.monotonic()


def _handle_error(context: ExceptionContext) -> None:
    """Let SQLAlchemy treat an answer that is late like a broken connection. Hide the values that an error quotes."""
    hide_values(context.sqlalchemy_exception or context.original_exception)
    if _is_lost(context.original_exception):
        context.is_disconnect = True
        if context.engine is not None and context.connection is not None and not context.connection.invalidated:
            _suspect_older(context.engine, context.connection.info)


def _suspect_older(engine: Engine, info: Mapping[str, float]) -> None:
    """Replace the other connections before their next use, if they were made before the lost one was taken from the pool."""
    _lost_at[engine] = max(_lost_at.get(engine, 0.0), info.get("taken_at", 0.0))


class driver_connection:  # noqa: N801  (used like a function: `async with driver_connection(engine) as connection`)
    """A connection of the engine's pool, as the driver's own object, for statements that run often.

    In Python a statement on it costs a quarter of what it costs through SQLAlchemy. SQLAlchemy's codecs are set on it: JSON
    goes in as text and comes out decoded. A connection that broke or whose transaction was left open is not used again. An
    error that leaves the block quotes no value of a row or statement (`messaging.masking`).
    """

    def __init__(self, engine: AsyncEngine) -> None:
        self._engine = engine

    async def __aenter__(self) -> asyncpg.Connection:
        self._pooled = await self._engine.raw_connection()
        self._connection: asyncpg.Connection = self._pooled.driver_connection  # type: ignore[assignment]
        return self._connection

    async def __aexit__(self, _: object, error: BaseException | None, __: object) -> None:
        lost = error is not None and _is_lost(error)
        cancelled = error is not None and not isinstance(error, Exception)  # perhaps in the middle of a statement
        if error is not None:
            hide_values(error)
        if lost:
            _suspect_older(self._engine.sync_engine, self._pooled.info)
        if lost or cancelled or self._connection.is_closed() or self._connection.is_in_transaction():
            self._pooled.invalidate()
        self._pooled.close()


@asynccontextmanager
async def transaction(connection: asyncpg.Connection) -> AsyncIterator[None]:
    """Commit at the end, roll back after an error. Unlike the driver's own, it does not wait for a silent connection."""
    await connection.execute("BEGIN ISOLATION LEVEL READ COMMITTED")
    try:
        yield
        await connection.execute("COMMIT")
    except BaseException:
        await rollback(connection)
        raise


async def rollback(connection: asyncpg.Connection) -> None:
    """Roll back, or cut a connection that does not answer at once. Either way the server frees the locks soon."""
    if connection.is_closed() or not connection.is_in_transaction():
        return
    try:
        # Also when a statement was cancelled or timed out: this is the time in which the driver asks the server to cancel it.
        await connection.execute("ROLLBACK", timeout=ROLLBACK_SECONDS)
    except TimeoutError:
        connection.terminate()
    except (asyncpg.PostgresError, asyncpg.InterfaceError, OSError):
        pass  # a broken connection has rolled back


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
    plain, connect = opener(url)
    settings = {
        "application_name": process,
        "synchronous_commit": "off",
        "statement_timeout": f"{CONNECT_SECONDS * 1000:.0f}",
        **KEEPALIVE_BY_SERVER,
    }
    return await connect(
        plain.set(drivername="postgresql").render_as_string(hide_password=False),
        timeout=CONNECT_SECONDS,
        command_timeout=CONNECT_SECONDS,
        connection_class=LimitedConnection,
        server_settings=settings,
    )


def is_transient(error: BaseException) -> bool:
    """True if a retry may help: see the table at the top of this module."""
    if isinstance(error, PoolExhausted | asyncpg.InvalidCachedStatementError) or _is_lost(error):
        return True
    if isinstance(error, InvalidRequestError) and str(error) in (_REFUSED_TWICE, _CUT_AT_ONCE):
        return True
    return _sqlstate(error).startswith(_TRANSIENT)


def _is_lost(error: BaseException) -> bool:
    """True if the connection, and with it probably all of its pool, is of no further use."""
    if isinstance(error, OSError | asyncpg.InterfaceError | asyncpg.InternalClientError):
        return True
    if isinstance(error, DBAPIError) and error.connection_invalidated:
        return True
    return _sqlstate(error).startswith(_LOST)


def _sqlstate(error: BaseException) -> str:
    """While connecting, the driver's own error is raised as it is; later SQLAlchemy wraps it."""
    return getattr(getattr(error, "orig", error), "sqlstate", None) or ""


_WORDS = {
    "25006": "it is read-only",
    "28": "it refuses the login",
    "3D000": "the database does not exist",
    "53100": "its disk is full",
    "53200": "it is out of memory",
    "53300": "it has no free connections",
    "55P03": "a lock was not free in time",
    "57014": "a statement took too long",
    "57P": "it is starting or stopping",
    "58": "it cannot read or write its files",
}


def describe(error: BaseException) -> str:
    """What is wrong with the database, in words and without data of a statement."""
    sqlstate = _sqlstate(error)
    for state, words in _WORDS.items():
        if sqlstate.startswith(state):
            return words
    if isinstance(error, ConnectorFailed):
        return str(error)
    if isinstance(error, PoolExhausted):
        return "all connections of the pool are in use"
    if isinstance(error, TimeoutError):
        return "it does not answer"
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}"
    return f"{type(error).__name__} {sqlstate}".strip()


def refuses_changes(error: BaseException) -> bool:
    """True if the database works but stores nothing new: it is read-only, or its disk is full."""
    return _sqlstate(error) in ("25006", "53100")


async def ping(engine: AsyncEngine) -> None:
    async with driver_connection(engine) as connection:
        await connection.execute("SELECT", timeout=CONNECT_SECONDS)
