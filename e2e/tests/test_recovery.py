"""Every process is back by itself after an outage of the database: nothing is restarted, lost or dead-lettered."""

import asyncio
import json
import re
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial

import httpx

from e2e.support.databases import connect
from e2e.support.metrics import monitor
from e2e.support.tcp_proxy import TcpProxy
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT
from messaging.limits import CONNECT_SECONDS, GRACE, REQUEST, WORK


def test_each_limit_ends_an_outage_well_within_half_a_minute() -> None:
    for limits in (REQUEST, WORK):
        assert limits.statement + GRACE + CONNECT_SECONDS < 20
        assert limits.idle + CONNECT_SECONDS <= 25


def test_no_process_takes_more_connections_than_its_share(world: World) -> None:
    table = (PROJECT_ROOT / "docs" / "operations.md").read_text()
    rows = re.findall(r"^\| ([a-z-]+) \| (\d+) \| (\d+) \| (\d+) \| (\d+) \|$", table, re.MULTILINE)
    shares = {process: int(share) for process, *_, share in rows}
    labour = world.plan("Grace")
    with ThreadPoolExecutor(30) as pool:
        url = f"/api/v1/labours/{labour.id}"
        statuses = set(pool.map(lambda _: world.labour_api.get(url, headers=labour.mother).status_code, range(60)))

    sessions = "SELECT split_part(application_name, ':', 1) FROM pg_stat_activity WHERE datname = current_database()"
    used = Counter(row[0] for service in world.urls for row in world.sql(service, sessions))

    assert 200 in statuses
    assert statuses <= {200, 503}, "what is too much for a busy machine is refused"
    assert shares.keys() == set(world.services)
    assert {process: used[process] for process in shares if used[process] > shares[process]} == {}
    assert all(int(share) == sum(map(int, parts)) for _, *parts, share in rows)


def test_all_processes_are_back_after_their_database_connections_went_silent(
    world: World, database_proxy: TcpProxy
) -> None:
    labour = world.plan("Grace", "Alan")

    assert database_proxy.silence() > 20  # every process has some
    until(lambda: completes(world, labour), what="the API is back")
    world.until_everyone_is_told(labour, COMPLETE)

    assert not any(world.is_dead(name) for name in world.services)
    workers = [name for name in world.services if not name.endswith("-api")]
    until(lambda: [beat(world, name) for name in workers], lambda beats: {one["state"] for one in beats} == {"working"})


def test_a_read_only_database_is_named_by_every_worker_and_dead_letters_nothing(
    world: World, postgres: TemporaryServer
) -> None:
    labour = world.plan("Grace", "Alan")
    until(
        lambda: world.count("labour", "outbox WHERE published_at IS NULL AND discarded_at IS NULL"),
        lambda count: count == 0,
    )
    affected = ("notification-consumer", "notification-dispatcher")
    log = world.settings.log("notification-consumer")
    before = len(log.read_text())

    with read_only(postgres, world.urls["notification"].rpartition("/")[2]):
        world.complete(labour)
        for name in affected:
            until(lambda: beat(world, name), lambda beat: "it is read-only" in beat["reason"], what=name)  # noqa: B023
            live, ready, metrics = (ask(world, name, path) for path in ("/health/live", "/health/ready", "/metrics"))
            assert (live.status_code, ready.status_code, metrics.status_code) == (200, 503, 200)
            assert live.json()["state"] == "waiting"

    world.until_everyone_is_told(labour, COMPLETE)
    assert "dead-lettered" not in log.read_text()[before:]
    assert log.read_text()[before:].count("dependency unavailable") < 10
    assert not any(world.is_dead(name) for name in world.services)


def completes(world: World, labour: PlannedLabour) -> bool:
    """False if the API asks for a retry."""
    try:
        world.complete(labour)
        return True
    except httpx.HTTPStatusError as error:
        if error.response.status_code in (409, 503):
            return False
        raise


def beat(world: World, process: str) -> dict[str, str]:
    """The state of a worker, as its heartbeat tells it."""
    written: dict[str, str] = json.loads(world.settings.heartbeat(process).read_text())
    return written


def ask(world: World, process: str, path: str) -> httpx.Response:
    """An answer of the listener for probes."""
    return monitor(world.settings.heartbeat(process), path)


@contextmanager
def read_only(server: TemporaryServer, database: str) -> Iterator[None]:
    """As on a server that became a standby: every session is ended, and new ones cannot write."""
    run = partial(_as_superuser, server)
    run(f"ALTER DATABASE {database} SET default_transaction_read_only = on")
    run(f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = '{database}'")
    try:
        yield
    finally:
        run(f"ALTER DATABASE {database} RESET default_transaction_read_only")


def _as_superuser(server: TemporaryServer, statement: str) -> None:
    async def run() -> None:
        connection = await connect(server.dsn())
        await connection.execute(statement)
        await connection.close()

    asyncio.run(run())
