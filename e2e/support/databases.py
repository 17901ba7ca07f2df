"""PostgreSQL for tests and experiments: a temporary server with both services' migrated databases, and copies of them."""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import uuid4

import asyncpg
from sqlalchemy import make_url

from e2e.support.tcp_proxy import TcpProxy
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, temporary_server
from fern.settings import SERVICES


@contextmanager
def migrated_server(directory: Path, *, fsync: bool = False) -> Iterator[TemporaryServer]:
    """A server with the roles and migrated databases of both services. It is stopped afterwards."""
    with temporary_server(directory, fsync=fsync) as server:
        asyncio.run(ensure_service_databases(server.dsn()))
        for service, url in owner_urls(server).items():
            migrate(service, url)
        yield server


def migrated(server: TemporaryServer, *services: str) -> dict[str, str]:
    """Make the databases of these services on a new server; returns their URLs for the services' processes."""
    asyncio.run(ensure_service_databases(server.dsn()))
    urls = {service: url for service, url in service_urls(server).items() if service in services}
    for service, url in urls.items():
        migrate(service, owner_url(url))
    return urls


def service_urls(server: TemporaryServer) -> dict[str, str]:
    return {service: server.url(service, service) for service in SERVICES}


def owner_urls(server: TemporaryServer) -> dict[str, str]:
    """The URLs for what only the owner of the tables may do: migrations, and faults that change a table."""
    return {service: owner_url(url) for service, url in service_urls(server).items()}


def owner_url(url: str) -> str:
    """The URL of the same database for the owner of its tables."""
    service = make_url(url).username
    return (
        make_url(url)
        .set(username=f"{service}_owner", password=f"{service}_owner")
        .render_as_string(hide_password=False)
    )


async def connect(url: str) -> asyncpg.Connection:
    """A connection outside any pool, to a URL as SQLAlchemy or PostgreSQL writes it."""
    return await asyncpg.connect(url.replace("+asyncpg", ""))


async def as_owner(url: str, statements: str) -> None:
    """Run statements that the role of the processes may not."""
    owner = await connect(owner_url(url))
    try:
        await owner.execute(statements)
    finally:
        await owner.close()


async def fresh_database(server: TemporaryServer, service: str, template: str | None = None) -> str:
    """Copy the service's migrated database, or `template`; returns the URL of the copy for the role of the service's processes.

    The role owns the copy, and so may add tables of a test. It does not own the tables in it.
    """
    name = f"{service}_{uuid4().hex}"
    admin = await connect(server.dsn())
    try:
        await admin.execute(f"CREATE DATABASE {name} TEMPLATE {template or service} OWNER {service}")
    finally:
        await admin.close()
    return server.url(name, service)


async def fresh_databases(server: TemporaryServer) -> dict[str, str]:
    return {service: await fresh_database(server, service) for service in SERVICES}


def through(proxy: TcpProxy, url: str) -> str:
    """The URL of the same database behind a proxy."""
    return make_url(url).set(port=proxy.port).render_as_string(hide_password=False)
