"""Processes retry through an outage of the database or the bus: nothing is lost or given up, and every loop recovers by itself.

Limits are short here, so that the tests are; their order is that of production.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from uuid import UUID
from weakref import WeakSet

import asyncpg
import msgspec
import pytest
from sqlalchemy import Connection, text
from sqlalchemy.exc import InvalidRequestError
from sqlalchemy.ext.asyncio import AsyncEngine
from structlog.testing import capture_logs

from conftest import units_of_work
from e2e.support.bus import apply_topology, pull_all
from e2e.support.databases import connect, through
from e2e.support.sample_events import TOPICS, Happened, all_published, emit, outbox_state
from e2e.support.tcp_proxy import TcpProxy, tcp_proxy
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging import database, progress, relay, wakeups
from messaging.bus import Message, Outgoing
from messaging.consumer import Consumer, Received, Verdict
from messaging.database import create_engine, driver_connection, is_transient, ping
from messaging.envelope import Envelope
from messaging.limits import Limits
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from messaging.relay import Relay
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from messaging.wakeups import Listener

SHORT = Limits(lock=0.5, statement=1.0, idle=2.0, pool=10.0)


@pytest.fixture(autouse=True)
def no_other_outages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "_outages", WeakSet())


@pytest.fixture
def proxy(postgres: TemporaryServer) -> Iterator[TcpProxy]:
    """A proxy between the test and its database."""
    with tcp_proxy((postgres.host, postgres.port)) as proxy:
        yield proxy


@pytest.fixture
async def proxied(labour_url: str, proxy: TcpProxy) -> AsyncIterator[AsyncEngine]:
    """The database behind the proxy."""
    engine = create_engine(through(proxy, labour_url), process="proxied", pool_size=4, limits=SHORT)
    yield engine
    await engine.dispose()


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


@pytest.mark.parametrize("use", ["driver", "sqlalchemy"])
async def test_one_late_answer_replaces_every_connection_of_the_pool(
    proxied: AsyncEngine, proxy: TcpProxy, use: str
) -> None:
    async def backend() -> int:
        if use == "sqlalchemy":
            async with proxied.begin() as connection:
                return int((await connection.execute(text("SELECT pg_backend_pid()"))).scalar_one())
        async with units_of_work(proxied, "tests")() as uow:
            return int(await uow.connection.fetchval("SELECT pg_backend_pid()"))

    held = [driver_connection(proxied) for _ in range(4)]
    before = {(await one.__aenter__()).get_server_pid() for one in held}
    for one in held:
        await one.__aexit__(None, None, None)
    proxy.silence()

    with pytest.raises(TimeoutError) as late:
        await backend()

    assert is_transient(late.value)
    assert before.isdisjoint(await asyncio.gather(*(backend() for _ in range(4))))


async def test_connections_that_are_lost_as_soon_as_they_are_made_are_a_transient_error(
    proxied: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """SQLAlchemy gives up after two of them, with an error that does not look like one of the database."""
    monkeypatch.setitem(database._lost_at, proxied.sync_engine, float("inf"))

    with pytest.raises(InvalidRequestError) as lost:
        await ping(proxied)

    assert is_transient(lost.value)


async def test_a_pool_whose_first_connection_is_cut_at_once_has_a_transient_error(labour_engine: AsyncEngine) -> None:
    """SQLAlchemy then goes on to ask the server for its schema, on a connection that it has closed."""

    def ask_on_a_closed_connection(connection: Connection) -> None:
        connection.close()
        connection.exec_driver_sql("SELECT current_schema()")

    async with labour_engine.connect() as connection:
        with pytest.raises(InvalidRequestError) as closed:
            await connection.run_sync(ask_on_a_closed_connection)

    assert is_transient(closed.value)


async def test_a_statement_that_is_cancelled_leaves_no_lock_and_no_open_transaction(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork
) -> None:
    async def lock_and_hang() -> None:
        async with labour_units().locking(7) as uow:
            await uow.connection.execute("SELECT pg_sleep(60)")

    async def locks() -> int:
        async with driver_connection(labour_engine) as connection:
            return int(await connection.fetchval("SELECT count(*) FROM pg_locks WHERE locktype = 'advisory'"))

    hanging = asyncio.create_task(lock_and_hang())
    await eventually(locks, what="it holds the lock")
    hanging.cancel()
    await asyncio.wait([hanging])

    await eventually(locks, lambda count: count == 0, what="the lock is free", seconds=10)


async def test_a_relay_is_back_after_silence_between_and_during_its_passes(
    proxied: AsyncEngine, proxy: TcpProxy, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    async with running(Relay(proxied, bus, poll_interval=0.1).run):
        await emit(labour_units, Happened("a", 1))
        await eventually(lambda: all_published(labour_engine), what="the first is published")

        proxy.silence()
        await emit(labour_units, Happened("a", 2))
        await eventually(lambda: all_published(labour_engine), what="the second is published")

        reading, go_on = asyncio.Event(), asyncio.Event()

        async def hold() -> None:
            reading.set()
            await go_on.wait()

        relay.AFTER_READ.arm(hold)
        try:
            await emit(labour_units, Happened("a", 3))
            await reading.wait()
            proxy.silence()  # the server does not know it: the pass has its lanes locked until the session is ended
        finally:
            relay.AFTER_READ.disarm()
            go_on.set()
        await eventually(lambda: all_published(labour_engine), what="the third is published")

    assert [attempts for _, _, _, attempts, _ in await outbox_state(labour_engine)] == [0, 0, 0]


async def test_a_listener_notices_silence_and_listens_again(
    labour_url: str, proxy: TcpProxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wakeups, "LISTEN_CHECK", 0.05)
    monkeypatch.setattr(database, "CONNECT_SECONDS", 1.0)
    woken = asyncio.Event()
    listening = asyncio.create_task(Listener(through(proxy, labour_url), "outbox", woken.set, process="tests").run())
    await woken.wait()
    woken.clear()

    proxy.silence()

    await asyncio.wait_for(woken.wait(), 60)  # once after each connection
    listening.cancel()


@asynccontextmanager
async def running(run: Callable[[asyncio.Event], Coroutine[None, None, None]]) -> AsyncIterator[None]:
    stop = asyncio.Event()
    task = asyncio.create_task(run(stop))
    try:
        yield
    finally:
        stop.set()
        await asyncio.wait_for(task, 60)


@asynccontextmanager
async def read_only(url: str, engine: AsyncEngine) -> AsyncIterator[None]:
    """For sessions that begin meanwhile, as on a server that became a standby: those before have been disconnected."""
    name = url.rpartition("/")[2]
    admin: asyncpg.Connection = await connect(url)
    await admin.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on")
    await engine.dispose()
    try:
        yield
    finally:
        await admin.execute(f"ALTER DATABASE {name} RESET default_transaction_read_only")
        await admin.close()


async def test_a_read_only_database_dead_letters_nothing_and_is_logged_once_when_it_begins_and_once_when_it_ends(
    labour_url: str, labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub
) -> None:
    async def react(uow: UnitOfWork, events: Sequence[Received[Happened]]) -> Collection[UUID]:
        return ()

    def decode(envelope: Envelope) -> Happened:
        return msgspec.json.decode(envelope.data, type=Happened)

    consumer = Consumer(
        "tests", units_of_work=labour_units, decode=decode, react=react, publisher=bus, max_attempts=0
    )  # an error that is not transient dead-letters at once
    await emit(labour_units, Happened("a", 1))
    await Relay(labour_engine, bus, lanes=64).run_once()
    messages = await bus.pull(f"tests.{Happened.type}", 1, wait=30)
    await emit(labour_units, Happened("a", 2))
    with capture_logs() as logs:
        async with AsyncExitStack() as stack:
            async with read_only(labour_url, labour_engine):
                await stack.enter_async_context(running(Relay(labour_engine, bus, poll_interval=0.05).run))
                handling = asyncio.create_task(consumer.handle(messages))
                await eventually(tries, lambda counts: len(counts) == 2 and min(counts) > 2, what="both have retried")
                assert not handling.done()
                assert progress.state().state == "waiting"
                assert "it is read-only" in progress.state().reason
            assert await handling == [Verdict.ACK]
            await eventually(lambda: all_published(labour_engine), what="the event is published")

    assert [line["event"] for line in logs if line["event"].startswith("dependency")] == [
        "dependency unavailable",
        "dependency unavailable",
        "dependency available again",
        "dependency available again",
    ]
    assert await pull_all(bus, f"{Happened.type}.dlq") == []
    assert [attempts for _, _, _, attempts, _ in await outbox_state(labour_engine)] == [0, 0]


async def tries() -> list[int]:
    """The failed tries of each outage that is under way."""
    return [outage._failures for outage in progress._outages]


SQLSTATES = [
    (sqlstate.strip(), columns[3].strip() == "yes")
    for line in str(database.__doc__).splitlines()
    if len(columns := line.split("|")) > 4 and columns[1].strip()[:1].isdigit() and "0A000" not in line
    for sqlstate in columns[1].replace("XX, …", "XX").split(",")
]


@pytest.mark.parametrize(("sqlstate", "transient"), SQLSTATES)
def test_a_sqlstate_is_transient_or_not_as_the_table_says(sqlstate: str, transient: bool) -> None:
    error = asyncpg.PostgresError.new({"C": f"{sqlstate:0<5}", "M": "an error"})

    assert is_transient(error) is transient


async def test_rows_of_a_missing_topic_wait_for_it_unparked_and_hold_up_their_own_keys_only(
    labour_engine: AsyncEngine, labour_units: UnitsOfWork, bus: PubSub, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Lost(Happened, frozen=True):
        type = "test.lost"

    monkeypatch.setattr(relay, "TOPIC_RETRY", 0.0)
    await emit(labour_units, Lost("sick", 1), Happened("sick", 2), Happened("well", 1))
    one = Relay(labour_engine, bus, max_attempts=3, retry_base=0.0, retry_cap=0.0, lanes=64)

    for _ in range(5):
        await one.run_once()
    states = [(key, *state) for _, key, *state in await outbox_state(labour_engine)]
    assert states == [("sick", False, 1, False), ("sick", False, 0, False), ("well", True, 0, False)]
    assert "topic test.lost unavailable" in progress.state().reason
    await apply_topology(project, {**TOPICS, Lost.type: ["tests"]})
    await one.run_once()

    assert await all_published(labour_engine)
    assert "test.lost" not in progress.state().reason
    assert [message.attributes["ce-type"] for message in await pull_all(bus, "tests.test.lost")] == ["test.lost"]


async def test_a_receiver_without_its_subscription_says_so_and_goes_on_when_it_is_there(
    bus: PubSub, project: str
) -> None:
    received = asyncio.Event()

    async def handle(batch: Sequence[Message]) -> list[Verdict]:
        received.set()
        return [Verdict.ACK] * len(batch)

    async def reason() -> str:
        return progress.state().reason

    def missing(reason: str) -> bool:
        return "subscription tests.test.late unavailable" in reason and "NOT_FOUND" in reason

    async with running(Receiver(bus, ["tests.test.late"], handle).run):
        await eventually(reason, missing, what="the receiver says what it waits for")
        await apply_topology(project, {**TOPICS, "test.late": ["tests"]})
        await bus.publish("test.late", [Outgoing(b"{}", {})])
        await asyncio.wait_for(received.wait(), 60)
        assert not missing(await reason())


async def test_waiting_for_a_connection_of_the_pool_is_bounded(labour_url: str) -> None:
    engine = create_engine(labour_url, process="tests", pool_size=1, limits=Limits(1.0, 1.0, 5.0, pool=0.1))
    async with driver_connection(engine):
        with pytest.raises(Exception, match="QueuePool") as exhausted:
            await ping(engine)
    await engine.dispose()

    assert is_transient(exhausted.value)
