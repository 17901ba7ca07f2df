"""On SIGTERM under load, every process finishes its work within its limit, and leaves no lease, lock or session behind."""

import asyncio
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from e2e.support.background_load import BackgroundLoad
from e2e.support.databases import connect
from e2e.support.waiting import PATIENCE, until
from e2e.support.world import COMPLETE, World

AT_THE_LIMIT = "stopping took too long, rolling back what is under way"

# What a killed process would leave behind, and what a test waits for
SESSIONS = "pg_stat_activity WHERE datname = current_database() AND split_part(application_name, ':', 1) = $1"
WAITING = "pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"
BEGUN = "pg_stat_activity WHERE application_name = 'labour-relay' AND xact_start > $1"
FREE_LANES = "(SELECT lane FROM outbox_lane FOR UPDATE SKIP LOCKED) AS free"
SENDING = "notification WHERE state = 'SENDING'"
LANES = 64


@contextmanager
def stopped(world: World, name: str) -> Iterator[str]:
    """Stop a process and wait until its sessions are gone. Yields what it logged meanwhile; afterwards it is started again."""
    log = world.settings.log(name)
    before = log.stat().st_size
    try:
        code = world.stop(name)
        said = log.read_bytes()[before:].decode()
        assert (code, "process stopped" in said.splitlines()[-1]) == (0, True), said[-2000:]
        service = name.partition("-")[0]
        until(lambda: world.count(service, SESSIONS, name) == 0, what="its sessions are closed")
        yield said
    finally:
        world.kill(name)
        world.start(name)


def leased(world: World, consumer: str) -> int:
    items = world.pubsub.get("/backlog").json()["items"]
    return sum(item["leased"] for item in items if item["subscription"].startswith(f"{consumer}."))


@contextmanager
def in_a_transaction(world: World, service: str, statement: str, *arguments: object) -> Iterator[None]:
    """Hold the locks of a statement during the block."""
    with asyncio.Runner() as runner:
        connection = runner.run(connect(world.urls[service]))
        runner.run(connection.execute("BEGIN"))
        runner.run(connection.fetch(statement, *arguments))
        try:
            yield
        finally:
            runner.run(connection.close())


@pytest.mark.parametrize("name", ["labour-consumer", "labour-statistics", "notification-api", "notification-relay"])
def test_a_process_that_is_stopped_under_load_leaves_nothing_behind(
    world: World, load: BackgroundLoad, name: str
) -> None:
    until(lambda: len(load.labours) >= 3, what="there is load")

    with stopped(world, name):
        if name == "labour-consumer":
            assert leased(world, "labour") == 0
        if name == "labour-statistics":
            assert leased(world, "statistics") == 0
        if name == "notification-relay":
            assert world.count("notification", FREE_LANES) == LANES
    load.assert_everyone_is_told_once()


def test_a_consumer_in_the_middle_of_a_transaction_returns_the_messages_that_it_cannot_handle(
    world: World, load: BackgroundLoad
) -> None:
    with in_a_transaction(world, "notification", "LOCK TABLE roster IN ACCESS EXCLUSIVE MODE"):
        until(lambda: leased(world, "notification") > 0, what="it has leased messages that it cannot handle")

        with stopped(world, "notification-consumer"):
            assert leased(world, "notification") == 0
    load.assert_everyone_is_told_once()


def test_a_dispatcher_with_calls_under_way_leaves_none_of_them_leased(world: World, load: BackgroundLoad) -> None:
    world.sms_sandbox.put("/faults/slow", json={"rate": 1, "seconds": 1}).raise_for_status()
    try:
        until(lambda: world.count("notification", SENDING) > 0, what="a call is under way")

        with stopped(world, "notification-dispatcher"):
            assert world.count("notification", SENDING) == 0
    finally:
        world.sms_sandbox.delete("/faults/slow").raise_for_status()
    load.assert_everyone_is_told_once()


def test_a_request_under_way_is_answered_before_the_api_ends(world: World, load: BackgroundLoad) -> None:
    until(lambda: len(load.labours) >= 3, what="there is load")
    labour = world.plan("Alan")
    row = "SELECT 1 FROM labour WHERE id = $1 FOR UPDATE"
    with ThreadPoolExecutor() as others:
        with in_a_transaction(world, "labour", row, labour.id):
            completing = others.submit(world.complete, labour)
            until(lambda: world.count("labour", WAITING, "labour-api") > 0, what="the request waits for the row")
            stopping = others.submit(world.stop, "labour-api")
            until(lambda: not world.is_healthy("labour-api"), what="no new requests are accepted")
        try:
            completing.result()
            assert stopping.result() == 0
        finally:
            world.kill("labour-api")
            world.start("labour-api")

    world.until_everyone_is_told(labour, COMPLETE)
    load.assert_everyone_is_told_once()


def test_a_relay_whose_bus_hangs_stops_within_its_limit_all_the_same(world: World, load: BackgroundLoad) -> None:
    world.freeze("labour-relay")
    world.pubsub.put("/faults/hang", json={"rate": 1}).raise_for_status()
    [since] = world.sql("labour", "SELECT now()")[0]
    world.resume("labour-relay")
    try:
        until(lambda: world.count("labour", BEGUN, since) > 0, what="an earlier call is over")
        until(lambda: world.count("labour", FREE_LANES) < LANES, what="it is in the middle of a call")

        with stopped(world, "labour-relay") as said:
            assert AT_THE_LIMIT in said
            assert world.count("labour", FREE_LANES) == LANES
    finally:
        world.pubsub.delete("/faults/hang").raise_for_status()
    load.assert_everyone_is_told_once()


def test_a_process_that_still_waits_for_its_database_stops_when_asked(world: World) -> None:
    nowhere = world.environment() | {"LABOUR_DATABASE_URL": "postgresql+asyncpg://labour@127.0.0.1:1/none"}
    process = subprocess.Popen(
        [sys.executable, "-m", "labour", "relay"], env=nowhere, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert "dependency unavailable" in process.stdout.readline()

    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == 0
    process.stdout.close()
