"""Asked to stop under load, every process finishes what it holds, within its limit, and leaves nothing to wait for."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import asyncpg
import httpx
import pytest

from e2e.support.background_load import BackgroundLoad
from e2e.support.waiting import PATIENCE, until
from e2e.support.world import COMPLETE, World

AT_THE_LIMIT = "stopping took too long, rolling back what is under way"

# What a process would leave behind if it were killed
SESSIONS = """
    SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND split_part(application_name, ':', 1) = $1
"""
WAITING = "SELECT count(*) FROM pg_stat_activity WHERE application_name = $1 AND wait_event_type = 'Lock'"
BEGUN = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'labour-relay' AND xact_start > $1"
LANES_IN_USE = "SELECT 64 - count(*) FROM (SELECT lane FROM outbox_lane FOR UPDATE SKIP LOCKED) AS free"
BEING_SENT = "SELECT count(*) FROM notification WHERE state = 'SENDING'"


@contextmanager
def stopped(world: World, name: str) -> Iterator[str]:
    """Asked to stop, it has ended in order, and nothing of it is left. Yields the end of its log; afterwards it runs again."""
    log = world.settings.log(name)
    before = log.stat().st_size
    try:
        code = world.stop(name)
        said = log.read_bytes()[before:].decode()
        assert (code, "process stopped" in said.splitlines()[-1]) == (0, True), said[-2000:]
        service = name.partition("-")[0]
        until(lambda: count(world, service, SESSIONS, name) == 0, what="the database has seen it go")
        yield said
    finally:
        world.kill(name)
        world.start(name)


def count(world: World, service: str, query: str, *arguments: object) -> int:
    return int(world.sql(service, query, *arguments)[0][0])


def leased(world: World, consumer: str) -> int:
    items = httpx.get(world.settings.url("pubsub-http") + "/backlog").json()["items"]
    return sum(item["leased"] for item in items if item["subscription"].startswith(f"{consumer}."))


@contextmanager
def in_a_transaction(world: World, service: str, statement: str, *arguments: object) -> Iterator[None]:
    """Its locks are held meanwhile, and gone afterwards."""
    with asyncio.Runner() as runner:
        connection = runner.run(asyncpg.connect(world.urls[service].replace("+asyncpg", "")))
        runner.run(connection.execute("BEGIN"))
        runner.run(connection.fetch(statement, *arguments))
        try:
            yield
        finally:
            runner.run(connection.close())


@pytest.mark.parametrize("name", ["labour-consumer", "notification-api", "notification-relay"])
def test_a_process_that_is_asked_to_stop_under_load_ends_in_order(
    world: World, load: BackgroundLoad, name: str
) -> None:
    until(lambda: len(load.labours) >= 3, what="there is load")

    with stopped(world, name):
        if name == "labour-consumer":
            assert leased(world, "labour") == 0
        if name == "notification-relay":
            assert count(world, "notification", LANES_IN_USE) == 0
    load.assert_everyone_is_told_once()


def test_a_consumer_in_the_middle_of_a_transaction_hands_back_what_it_cannot_finish(
    world: World, load: BackgroundLoad
) -> None:
    with in_a_transaction(world, "notification", "LOCK TABLE roster IN ACCESS EXCLUSIVE MODE"):
        until(lambda: leased(world, "notification") > 0, what="it holds messages that it cannot handle")

        with stopped(world, "notification-consumer"):
            assert leased(world, "notification") == 0
    load.assert_everyone_is_told_once()


def test_a_dispatcher_with_calls_under_way_leaves_none_of_them_leased(world: World, load: BackgroundLoad) -> None:
    world.sms_sandbox.put("/faults/slow", json={"rate": 1, "seconds": 1}).raise_for_status()
    try:
        until(lambda: count(world, "notification", BEING_SENT) > 0, what="a call is under way")

        with stopped(world, "notification-dispatcher"):
            assert count(world, "notification", BEING_SENT) == 0
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
            until(lambda: count(world, "labour", WAITING, "labour-api") > 0, what="the request waits for the row")
            stopping = others.submit(world.stop, "labour-api")
            until(lambda: not world.is_healthy("labour-api"), what="no new requests are taken")
        try:
            completing.result()
            assert stopping.result() == 0
        finally:
            world.kill("labour-api")
            world.start("labour-api")

    world.until_everyone_is_told(labour, COMPLETE)
    load.assert_everyone_is_told_once()


def test_a_relay_whose_bus_hangs_stops_within_its_limit_all_the_same(world: World, load: BackgroundLoad) -> None:
    faults = world.settings.url("pubsub-http") + "/faults"
    world.freeze("labour-relay")
    httpx.put(f"{faults}/hang", json={"rate": 1}).raise_for_status()
    [since] = world.sql("labour", "SELECT now()")[0]
    world.resume("labour-relay")
    try:
        until(lambda: count(world, "labour", BEGUN, since) > 0, what="a call from before is over")
        until(lambda: count(world, "labour", LANES_IN_USE) > 0, what="it is in the middle of a call")

        with stopped(world, "labour-relay") as said:
            assert AT_THE_LIMIT in said
            assert count(world, "labour", LANES_IN_USE) == 0
    finally:
        httpx.delete(f"{faults}/hang").raise_for_status()
    load.assert_everyone_is_told_once()


def test_a_process_that_still_waits_for_its_database_stops_when_asked(world: World) -> None:
    nowhere = {
        **os.environ,
        **world.environment(),
        "LABOUR_DATABASE_URL": "postgresql+asyncpg://labour@127.0.0.1:1/none",
    }
    process = subprocess.Popen(
        [sys.executable, "-m", "labour", "relay"], env=nowhere, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout
    assert "waiting for a dependency" in process.stdout.readline()

    process.send_signal(signal.SIGTERM)

    assert process.wait(PATIENCE) == 0
    process.stdout.close()
