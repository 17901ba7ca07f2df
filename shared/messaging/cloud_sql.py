"""Connections to Cloud SQL through Google's connector, if the database URL names an instance instead of a host:

postgresql+asyncpg://USER@/DATABASE?cloudsql=PROJECT:REGION:INSTANCE

cloudsql      the connection name of the instance
cloudsql_ip   which of its addresses: private, public or psc (Private Service Connect); without it, private

The connector asks the Cloud SQL Admin API for the address, for the certificate authority of this instance and for a client
certificate, with the default credentials of the process. It renews the certificate in the background, before it expires. Both
sides are verified, so there is no `sslmode`. Without a password, the user is an IAM user and logs in with the same credentials.

The library is imported when the first connection is opened, and not at all if no URL names an instance.
"""

import asyncio
import re
from dataclasses import dataclass
from importlib.util import find_spec
from typing import Any

import asyncpg
from sqlalchemy import URL

from messaging.errors import SettingsError
from messaging.tls import parse

_IP_TYPES = ("private", "public", "psc")
_LIBRARY = "google.cloud.sql.connector"
_NAME = re.compile(r"([a-z0-9.-]+:)?[a-z0-9-]+:[a-z0-9-]+:[a-z0-9-]+")  # an old project has a domain before its name
_AT_ONCE = 20  # attempts to connect that have not ended, for each event loop
# Raised as they are: the database did not answer, refused, or has a certificate of another authority.
_OF_THE_DATABASE = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)


class ConnectorFailed(ConnectionError):
    """The connector has no address or no certificate: its API does not answer or refuses. A transient error."""


def find_instance(url: str) -> "Instance | None":
    """The instance that the URL names, if any. Raises `SettingsError`, which never repeats the URL."""
    parsed = parse(url)
    given = {name: value for name, value in parsed.query.items() if name.startswith("cloudsql")}
    if not given:
        return None
    name, ip_type = given.pop("cloudsql", ""), given.pop("cloudsql_ip", "private")
    if given:
        raise SettingsError(f"it has the parameter {min(given)}: only cloudsql and cloudsql_ip are known")
    if not (isinstance(name, str) and _NAME.fullmatch(name)):
        raise SettingsError("its cloudsql is not the name of an instance: write cloudsql=PROJECT:REGION:INSTANCE, once")
    if ip_type not in _IP_TYPES:
        raise SettingsError(f"it has an unknown cloudsql_ip: write one of {', '.join(_IP_TYPES)}")
    if parsed.host or any(other == "host" or other.startswith("ssl") for other in parsed.query):
        raise SettingsError("it has cloudsql beside a host or sslmode, which the connector decides: remove either")
    if not (parsed.username and parsed.database):
        raise SettingsError(
            "it has cloudsql without a user or a database: write postgresql+asyncpg://USER@/DATABASE?cloudsql=…"
        )
    if not _is_installed():
        raise SettingsError(
            "it has cloudsql, and the library is missing: pip install 'cloud-sql-python-connector[asyncpg]'"
        )
    return Instance(parsed.difference_update_query(["cloudsql", "cloudsql_ip"]), name, ip_type)


@dataclass(frozen=True, slots=True)
class Instance:
    url: URL  # without our parameters
    name: str
    ip_type: str

    async def connect(self, _: str = "", *, timeout: float, **options: Any) -> asyncpg.Connection:
        """Like the driver's `connect`, and with its arguments, but the instance decides about address, TLS and login."""
        options |= {
            "user": self.url.username,
            "password": self.url.password,
            "database": self.url.database,
            "enable_iam_auth": not self.url.password,
            "ip_type": self.ip_type,
            "timeout": timeout,
        }
        try:
            async with asyncio.timeout(timeout):
                return await _of_this_loop().connect(self.name, options)
        except Exception as error:
            if _is_of_the_database(error):
                raise
            # If several attempts fail at once, only the first can forget the instance. The others fail over that.
            reason = error.__context__ if isinstance(error, KeyError) and error.__context__ else error
            raise ConnectorFailed(f"Google's connector failed: {type(reason).__name__} {reason}".rstrip()) from error


class _Connector:
    """The connector of one event loop. It is closed when the loop ends."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._connector: Any = None
        self._starting = asyncio.Lock()
        self._free = asyncio.Semaphore(_AT_ONCE)
        self._closing = loop.create_task(self._close_with(loop))

    async def connect(self, name: str, options: dict[str, Any]) -> asyncpg.Connection:
        """A caller that gives up does not end the attempt. All attempts share one request for a certificate, and the library
        would never make another one if that were cancelled.
        """
        connector = await self._start()
        await self._free.acquire()
        attempt = asyncio.create_task(connector.connect_async(name, "asyncpg", **options))
        attempt.add_done_callback(lambda _: self._free.release())
        try:
            await asyncio.wait([attempt])
        except asyncio.CancelledError:
            attempt.add_done_callback(_discard)
            raise
        if attempt.cancelled():
            raise ConnectorFailed("Google's connector failed: another attempt failed at the same time")
        connection: asyncpg.Connection = attempt.result()
        return connection

    async def _start(self) -> Any:
        async with self._starting:
            if self._connector is None:
                from google.auth import default
                from google.cloud.sql.connector import Connector

                # In a thread: the look-up of default credentials may wait for Google's metadata server.
                credentials, _ = await asyncio.to_thread(default)
                self._connector = Connector(loop=asyncio.get_running_loop(), credentials=credentials)
            return self._connector

    async def _close_with(self, loop: asyncio.AbstractEventLoop) -> None:
        try:
            await asyncio.Event().wait()  # until the loop cancels what still runs
        finally:
            del _connectors[loop]
            if self._connector is not None:
                await self._connector.close_async()


_connectors = dict[asyncio.AbstractEventLoop, _Connector]()


def _of_this_loop() -> _Connector:
    loop = asyncio.get_running_loop()
    if loop not in _connectors:
        _connectors[loop] = _Connector(loop)
    return _connectors[loop]


def _discard(attempt: "asyncio.Task[asyncpg.Connection]") -> None:
    if not attempt.cancelled() and attempt.exception() is None:
        attempt.result().terminate()


def _is_of_the_database(error: Exception) -> bool:
    from aiohttp import ClientError

    return isinstance(error, _OF_THE_DATABASE) and not isinstance(error, ClientError)


def _is_installed() -> bool:
    try:
        return find_spec(_LIBRARY) is not None
    except ModuleNotFoundError:  # not even its parent package
        return False
