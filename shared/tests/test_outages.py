"""An outage of the database is waited out: nothing is lost, nothing is given up, and every process is back by itself."""

import asyncio
from collections.abc import Iterator

import asyncpg
import pytest

from e2e.support.databases import connect, through
from e2e.support.tcp_proxy import TcpProxy, tcp_proxy
from fern.runtime.postgres import TemporaryServer


@pytest.fixture
def proxy(postgres: TemporaryServer) -> Iterator[TcpProxy]:
    """Between the test and its database."""
    with tcp_proxy((postgres.host, postgres.port)) as proxy:
        yield proxy


async def test_the_proxy_is_silent_on_old_connections_and_forwards_new_ones(labour_url: str, proxy: TcpProxy) -> None:
    old: asyncpg.Connection = await connect(through(proxy, labour_url))
    assert await old.fetchval("SELECT 1") == 1

    assert proxy.silence() == 1

    answer = asyncio.ensure_future(old.fetchval("SELECT 2"))
    new: asyncpg.Connection = await connect(through(proxy, labour_url))
    assert await new.fetchval("SELECT 3") == 3
    assert not answer.done()
    assert not old.is_closed()
    answer.cancel()
    old.terminate()
    await new.close()
