"""While the database hangs, is full, locked or out of connections, every request is answered in time, and none is lost."""

import asyncio
from collections.abc import AsyncIterator, Iterator

import asyncpg
import httpx
import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import async_client, speaking_as
from e2e.support.databases import as_owner, connect, through
from e2e.support.http_server import served
from e2e.support.tcp_proxy import TcpProxy, tcp_proxy
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from labour import app
from labour.settings import ApiSettings
from messaging.limits import Limits
from tests.labour_parts import assert_problem, fetch, outbox_types, plan

KEY = {"Idempotency-Key": '"8e03978e-40d5-43e8-bc93-6894a57f9324"'}
SHORT = Limits(lock=1.0, statement=1.5, idle=2.0, pool=1.0)
PATIENCE = 60  # seconds; a request without an answer takes longer than any test


@pytest.fixture
def proxy(postgres: TemporaryServer) -> Iterator[TcpProxy]:
    with tcp_proxy((postgres.host, postgres.port)) as proxy:
        yield proxy


@pytest.fixture
async def client(labour_url: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AsyncClient]:
    """A client, as Ada, of an API with short limits whose database is behind the proxy."""
    monkeypatch.setattr(app, "REQUEST", SHORT)
    settings = ApiSettings.load({"FERN_MODE": "local", "LABOUR_DATABASE_URL": through(proxy, labour_url)})
    api = app.build(settings).public
    async with served(api) as url, async_client(url, speaking_as("ada"), timeout=PATIENCE) as client:
        yield client


async def test_a_full_disk_is_a_503_that_says_so_and_the_same_key_succeeds_later(
    client: AsyncClient, labour_engine: AsyncEngine, labour_url: str
) -> None:
    labour = await plan(client)
    await as_owner(
        labour_url,
        """CREATE FUNCTION disk_is_full() RETURNS trigger LANGUAGE plpgsql AS $$
           BEGIN RAISE EXCEPTION 'could not extend file' USING ERRCODE = '53100'; END $$;
           CREATE TRIGGER disk_full BEFORE INSERT ON outbox EXECUTE FUNCTION disk_is_full()""",
    )

    full = await client.put(f"{labour}/complete", headers=KEY)
    await as_owner(labour_url, "DROP TRIGGER disk_full ON outbox")
    again = await client.put(f"{labour}/complete", headers=KEY)

    problem = assert_problem(full, 503, "unavailable")
    assert problem["detail"].startswith("The database cannot store changes just now.")
    assert int(full.headers["retry-after"]) > 0
    assert (again.status_code, await outbox_types(labour_engine)) == (200, ["labour.completed"])


async def test_more_requests_than_connections_are_all_answered_while_a_table_is_locked(
    client: AsyncClient, labour_url: str
) -> None:
    labour = await plan(client)
    holder: asyncpg.Connection = await connect(labour_url)
    async with holder.transaction():
        await holder.execute("LOCK TABLE labour IN ACCESS EXCLUSIVE MODE")
        answers = await asyncio.gather(*(client.get(labour) for _ in range(25)))
    await holder.close()

    kinds = {answer.json()["type"].rpartition(":")[2] for answer in answers}
    assert {answer.status_code for answer in answers} == {503}
    assert kinds == {"unavailable", "busy"}  # those that were admitted, and the others
    assert all("retry-after" in answer.headers for answer in answers)
    assert (await client.get(labour)).status_code == 200


async def test_a_role_without_free_connections_refuses_what_it_cannot_serve_and_goes_on_later(
    client: AsyncClient, postgres: TemporaryServer, labour_engine: AsyncEngine
) -> None:
    await fetch(labour_engine, "SELECT 1")  # the test's own connection
    [used] = await fetch(labour_engine, "SELECT count(*) FROM pg_stat_activity WHERE usename = 'labour'")
    admin: asyncpg.Connection = await connect(postgres.dsn())
    await admin.execute(f"ALTER ROLE labour CONNECTION LIMIT {used + 2}")
    try:
        answers = await asyncio.gather(*(_plan(client, f"mother-{number}") for number in range(25)))
    finally:
        await admin.execute("ALTER ROLE labour CONNECTION LIMIT -1")
        await admin.close()

    assert {answer.status_code for answer in answers} <= {201, 503}
    assert (await _plan(client, "later")).status_code == 201


async def _plan(client: AsyncClient, mother: str) -> httpx.Response:
    return await client.post("/api/v1/labours", json={"mother_name": "Ada"}, headers=speaking_as(mother))


async def test_a_retry_is_answered_soon_after_the_connection_of_the_first_request_went_silent(
    client: AsyncClient, proxy: TcpProxy, labour_url: str, labour_engine: AsyncEngine
) -> None:
    labour = await plan(client)
    holder: asyncpg.Connection = await connect(labour_url)
    async with holder.transaction():
        await holder.execute("SELECT FROM labour FOR UPDATE")
        first = asyncio.create_task(client.put(f"{labour}/complete", headers=KEY))
        waits = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        await eventually(lambda: fetch(labour_engine, waits), lambda count: count == [1], what="it waits for the row")
        proxy.silence()
    await holder.close()

    # The server has answered into the silence and waits for the next statement, with the lock of the key.
    async def retry() -> httpx.Response:
        return await client.put(f"{labour}/complete", headers=KEY)

    answer = await eventually(retry, lambda answer: answer.status_code == 200, what="the retry succeeds", seconds=30)

    assert answer.json()["phase"] == "complete"
    assert_problem(await first, 503, "unavailable")
    assert await outbox_types(labour_engine) == ["labour.completed"]
