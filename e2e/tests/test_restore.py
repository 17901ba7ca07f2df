"""The Notification database is restored to a point in time from a real archive, while the Labour service is ahead."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

from e2e.support.archive import archived_server, base_backup, restored_server
from e2e.support.databases import connect, fresh_database, owner_url, service_urls
from e2e.support.waiting import until
from e2e.support.world import COMPLETE, World
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, ensure_service_databases

WORKERS = ("notification-consumer", "notification-dispatcher", "notification-relay", "notification-api")


async def admin(server: TemporaryServer, statement: str) -> object:
    connection = await connect(server.dsn())
    try:
        return await connection.fetchval(statement)
    finally:
        await connection.close()


def test_after_a_restore_to_a_point_in_time_a_replay_brings_the_ledger_back_and_no_person_is_told_twice(
    postgres: TemporaryServer, tmp_path: Path
) -> None:
    with archived_server() as (archived, directory):
        asyncio.run(ensure_service_databases(archived.dsn()))
        notification = service_urls(archived)["notification"]
        migrate("notification", owner_url(notification))
        labour = asyncio.run(fresh_database(postgres, "labour"))
        world = World(tmp_path / "world", {"labour": labour, "notification": notification})
        try:
            world.start_all()
            base_backup(archived, directory / "backup")
            before, after = world.plan("Grace"), world.plan("Alan", "Edsger")
            world.complete(before)
            world.until_everyone_is_told(before, COMPLETE)
            until(lambda: world.count("notification", "notification WHERE state = 'DELIVERED'"), what="it is delivered")
            # The provider reports a delivery once: what it reports after the point is not brought back (docs/operations.md).
            world.sms_sandbox.put("/faults/callbacks-lost", json={"rate": 1.0}).raise_for_status()
            point = asyncio.run(admin(archived, "SELECT clock_timestamp()"))
            assert isinstance(point, datetime)
            world.complete(after)
            world.until_everyone_is_told(after, COMPLETE)
            finished = asyncio.run(admin(archived, "SELECT pg_walfile_name(pg_switch_wal())"))
            is_archived = f"SELECT coalesce(last_archived_wal >= '{finished}', false) FROM pg_stat_archiver"
            until(lambda: asyncio.run(admin(archived, is_archived)), what="the log is archived")

            for name in WORKERS:
                world.stop(name)
            archived.kill()
            with restored_server(directory / "backup", directory / "archive", point) as restored:
                world.urls["notification"] = service_urls(restored)["notification"]
                assert world.count("notification", "notification WHERE labour_id = $1", after.id) == 0
                restored_at = {"SMS_RESTORED_AT": datetime.now(UTC).isoformat()}
                for name in WORKERS:
                    world.spawn(name, restored_at)
                for name in WORKERS:
                    until(lambda: world.is_healthy(name), what=f"{name} is healthy")  # noqa: B023
                world.fern("replay", "--service", "labour", "--since", "1h", "--yes")

                world.until_everyone_is_told(after, COMPLETE)
                world.until_everyone_is_told(before, COMPLETE)
                for labour_ in (before, after):
                    world.until_nothing_is_lost_or_doubled(labour_)
        finally:
            world.kill_all()
