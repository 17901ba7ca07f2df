"""Databases are restored to a point in time from a real archive, and both services come back to one truth.

The steps are those of docs/operations.md, "Backup and restore".
"""

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
from google.cloud.pubsub_v1 import SubscriberClient

from e2e.support.archive import ArchivedServer, archived_server, base_backup, restored_server
from e2e.support.databases import connect, fresh_database, migrated, service_urls
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, PlannedLabour, World
from fern.audit.auditor import Finding, audit
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ID
from fern.topology import Declared

NOTIFICATION = ("notification-consumer", "notification-dispatcher", "notification-relay", "notification-api")


async def admin(server: TemporaryServer, statement: str) -> object:
    connection = await connect(server.dsn())
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def now(server: TemporaryServer) -> datetime:
    found = asyncio.run(admin(server, "SELECT clock_timestamp()"))
    assert isinstance(found, datetime)
    return found


def archive_everything(server: ArchivedServer) -> None:
    finished = asyncio.run(admin(server, "SELECT pg_walfile_name(pg_switch_wal())"))
    is_archived = f"SELECT coalesce(last_archived_wal >= '{finished}', false) FROM pg_stat_archiver"
    until(lambda: asyncio.run(admin(server, is_archived)), what="the log is archived")


@contextmanager
def world_of(home: Path, urls: dict[str, str]) -> Iterator[World]:
    world = World(home, urls)
    try:
        world.start_all()
        yield world
    finally:
        world.kill_all()


def tell(world: World, labour: PlannedLabour) -> None:
    world.complete(labour)
    world.until_everyone_is_told(labour, COMPLETE)


def tell_and_report_no_more(world: World, labour: PlannedLabour) -> None:
    """The provider reports a delivery once: what it reports after the point is not brought back (docs/operations.md)."""
    tell(world, labour)
    until(lambda: world.count("notification", "notification WHERE state = 'DELIVERED'"), what="it is delivered")
    world.sms_sandbox.put("/faults/callbacks-lost", json={"rate": 1.0}).raise_for_status()


def restart(world: World, *names: str) -> None:
    restored_at = {"SMS_RESTORED_AT": datetime.now(UTC).isoformat()}
    for name in names:
        world.spawn(name, restored_at if name in NOTIFICATION else {})
    for name in names:
        until(lambda: world.is_healthy(name), what=f"{name} is healthy")  # noqa: B023


def purge(subscriptions: list[str]) -> None:
    """Let the bus forget every message of these subscriptions."""
    with SubscriberClient() as subscriber:
        for name in subscriptions:
            path = f"projects/{PROJECT_ID}/subscriptions/{name}"
            subscriber.seek({"subscription": path, "time": datetime.now(UTC)}, timeout=10)


def findings(world: World, urls: dict[str, str]) -> list[Finding]:
    sandbox = world.settings.url("sms-sandbox")
    return asyncio.run(audit(urls, sandbox=sandbox, overdue_seconds=0)).findings


def test_after_a_restore_to_a_point_in_time_a_replay_brings_the_ledger_back_and_no_person_is_told_twice(
    postgres: TemporaryServer, tmp_path: Path
) -> None:
    with archived_server() as (archived, directory):
        urls = migrated(archived, "notification") | {"labour": asyncio.run(fresh_database(postgres, "labour"))}
        with world_of(tmp_path / "world", urls) as world:
            base_backup(archived, directory / "backup")
            before, after = world.plan("Grace"), world.plan("Alan", "Edsger")
            tell_and_report_no_more(world, before)
            point = now(archived)
            tell(world, after)
            archive_everything(archived)

            for name in NOTIFICATION:
                world.stop(name)
            archived.kill()
            with restored_server(directory / "backup", directory / "archive", point) as restored:
                world.urls["notification"] = service_urls(restored)["notification"]
                assert world.count("notification", "notification WHERE labour_id = $1", after.id) == 0
                restart(world, *NOTIFICATION)
                world.fern("replay", "--service", "labour", "--since", "1h", "--yes")

                world.until_everyone_is_told(after, COMPLETE)
                world.until_everyone_is_told(before, COMPLETE)
                for labour in (before, after):
                    world.until_nothing_is_lost_or_doubled(labour)


@pytest.mark.system
def test_after_a_restore_of_the_labour_database_both_services_are_at_its_point_in_time_and_labours_go_on_from_there(
    tmp_path: Path,
) -> None:
    with (
        archived_server() as (archived, directory),
        world_of(tmp_path / "world", migrated(archived, "labour", "notification")) as world,
    ):
        for service in ("labour", "notification"):
            base_backup(archived, directory / service)
        before, between, lost, unread = (world.plan(name) for name in ("Grace", "Edsger", "Alan", "Ada"))
        tell_and_report_no_more(world, before)
        point_of_notification = now(archived)
        tell(world, between)
        point_of_labour = now(archived)
        world.subscribe(lost, "Barbara")  # a version of the roster that the restored database will give again
        tell(world, lost)
        world.stop("notification-consumer")
        world.complete(unread)  # its event stays on the bus
        waiting = "outbox WHERE published_at IS NULL"
        until(lambda: world.count("labour", waiting) == 0, what="everything is published")
        archive_everything(archived)
        for name in world.services:
            if name != "notification-consumer":
                world.stop(name)

        archive = directory / "archive"
        with restored_server(directory / "labour", archive, point_of_labour) as labour_server:
            # Which requests are lost: the ledger that is ahead has their events.
            ahead = {"labour": service_urls(labour_server)["labour"], "notification": world.urls["notification"]}
            claimed = {one.event_id for one in findings(world, ahead) if one.stage == "claimed" and "never" in one.what}
            events = "SELECT DISTINCT event_id FROM notification WHERE labour_id = $1"
            assert {str(row[0]) for row in world.sql("notification", events, lost.id)} <= claimed
            texts = [text["sid"] for phone in lost.people.values() for text in world.messages(phone)]

            archived.kill()
            with restored_server(directory / "notification", archive, point_of_notification) as notification_server:
                world.urls = service_urls(notification_server) | {"labour": ahead["labour"]}
                purge([name for name, (_, dead) in Declared.load().subscriptions.items() if dead])
                restart(world, *world.services)
                world.fern("replay", "--since", "1h", "--yes")

                for labour in (before, between):
                    world.until_everyone_is_told(labour, COMPLETE)
                # All that is left of the lost requests are the texts that had been sent.
                accepted = {("unexplained", sid) for sid in texts}
                until(
                    lambda: {(one.kind, one.event_id) for one in findings(world, world.urls)},
                    lambda found: found == accepted,
                    what="the audit has only the texts of requests that are lost",
                )
                assert world.texts(unread) == {"Ada": []}

                # The mothers repeat their requests. Who had been told is told again.
                world.subscribe(lost, "Carol")
                world.complete(lost)
                tell(world, unread)
                until(lambda: len(world.texts(lost)["Carol"]) == 1, what="the roster of the repeated request counts")
                until(lambda: len(world.texts(lost)["Alan"]) == 2, what="he is told again")
                until(
                    lambda: {(one.kind, one.event_id) for one in findings(world, world.urls)},
                    lambda found: found == accepted,
                    what="nothing new is lost or doubled",
                )
