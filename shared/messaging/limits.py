"""How long a connection to PostgreSQL may wait, and how soon a dead peer is noticed.

Every wait for the database has a limit. A connection may go silent without being closed, as in a failover, and the server
may hang. The server's limits end statements and sessions, and so free their locks; the client's limits end the wait. Server
settings are sent with the startup message, so they cost no round trip.
"""

import socket
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import asyncpg

GRACE = 1.0  # seconds that the client waits longer than the server's limit, whose error keeps the connection usable
ROLLBACK_SECONDS = 0.5  # for the answer to a rollback; without it the connection is cut
CLOSE_SECONDS = 0.1  # for the messages that close a connection; without them it is cut
CONNECT_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Limits:
    """How long a connection may wait, in seconds.

    lock        for a lock that another transaction holds
    statement   for a statement, on the server; the client waits `GRACE` longer and then discards the connection
    idle        in a transaction between two statements; then the server ends the session, which frees its locks
    pool        for a free connection of the pool
    """

    lock: float
    statement: float
    idle: float
    pool: float

    def server_settings(self) -> dict[str, str]:
        limits = {
            "lock_timeout": self.lock,
            "statement_timeout": self.statement,
            "idle_in_transaction_session_timeout": self.idle,
        }
        return {name: f"{seconds * 1000:.0f}" for name, seconds in limits.items()}


REQUEST = Limits(lock=2.0, statement=4.0, idle=5.0, pool=2.0)
"""For HTTP requests: answered in time, if need be with 503."""
WORK = Limits(lock=8.0, statement=10.0, idle=20.0, pool=10.0)
"""For workers. `idle` is longer than a call to the bus, which the relay makes inside a transaction."""
MAINTENANCE = Limits(lock=30.0, statement=60.0, idle=60.0, pool=10.0)
"""For retention and for operators, whose statements may read whole tables."""
HOURS = Limits(lock=6 * 3600.0, statement=6 * 3600.0, idle=3600.0, pool=10.0)
"""For migrations, which may build an index, and wait for another migration."""

# How soon a dead peer is noticed, in seconds: without traffic after _IDLE + _COUNT * _INTERVAL, with unconfirmed data after
# _UNCONFIRMED. And how often the server looks whether the client of a running statement is still connected.
_IDLE, _INTERVAL, _COUNT, _UNCONFIRMED, _CLIENT_CHECK = 5, 2, 3, 10, 2
KEEPALIVE_BY_SERVER = {
    "tcp_keepalives_idle": f"{_IDLE}",
    "tcp_keepalives_interval": f"{_INTERVAL}",
    "tcp_keepalives_count": f"{_COUNT}",
    "tcp_user_timeout": f"{_UNCONFIRMED * 1000}",
    "client_connection_check_interval": f"{_CLIENT_CHECK * 1000}",
}
_KEEPALIVE_BY_CLIENT = {  # names of options, because not every platform has all of them
    "TCP_KEEPIDLE": _IDLE,
    "TCP_KEEPINTVL": _INTERVAL,
    "TCP_KEEPCNT": _COUNT,
    "TCP_USER_TIMEOUT": _UNCONFIRMED * 1000,
}


class LimitedConnection(asyncpg.Connection):
    """Sends TCP keepalives, and does not wait for long when it is closed."""

    def __init__(self, protocol: Any, transport: Any, *arguments: Any) -> None:
        super().__init__(protocol, transport, *arguments)
        own = transport.get_extra_info("socket")
        if own is not None and own.family != getattr(socket, "AF_UNIX", None):
            own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            for name, value in _KEEPALIVE_BY_CLIENT.items():
                if option := getattr(socket, name, None):
                    own.setsockopt(socket.IPPROTO_TCP, option, value)

    async def close(self, *, timeout: float | None = None) -> None:
        with suppress(TimeoutError):  # the driver has cut the connection
            await super().close(timeout=CLOSE_SECONDS)
