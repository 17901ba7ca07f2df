"""The role of the processes reads and writes rows. A table is changed by its owner only, or by two functions of the owner."""

from datetime import UTC, date, datetime, timedelta
from pathlib import Path

import asyncpg
import pytest
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.databases import connect, owner_url
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, ensure_service_databases, temporary_server
from fern.settings import SERVICES
from messaging.database import create_engine
from messaging.retention import Month, Retention

KEEP = timedelta(days=90)


@pytest.mark.parametrize("service", SERVICES)
@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE mine (id int)",
        "CREATE SCHEMA mine",
        "CREATE TEMPORARY TABLE mine (id int)",
        "CREATE FUNCTION mine() RETURNS int LANGUAGE sql AS 'SELECT 1'",
        "CREATE INDEX mine ON outbox (topic)",
        "CREATE TRIGGER mine BEFORE INSERT ON outbox EXECUTE FUNCTION suppress_redundant_updates_trigger()",
        "ALTER TABLE outbox ADD COLUMN mine int",
        "ALTER TABLE outbox DISABLE TRIGGER ALL",
        "ALTER TABLE outbox OWNER TO CURRENT_USER",
        "DROP TABLE outbox",
        "DROP TABLE processed_event_default",
        "TRUNCATE outbox",
        "CREATE OR REPLACE FUNCTION drop_claims_partition(of_month date, before timestamptz) RETURNS boolean "
        "LANGUAGE sql AS 'SELECT true'",
        "DO $$ BEGIN EXECUTE 'SET ROLE ' || current_user || '_owner'; END $$",
    ],
)
async def test_the_role_of_the_processes_changes_no_table(
    postgres: TemporaryServer, service: str, statement: str
) -> None:
    process = await connect(postgres.url(service, service))
    try:
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await process.execute(statement)
    finally:
        await process.close()


@pytest.mark.parametrize("service", SERVICES)
async def test_the_role_of_the_processes_may_read_and_write_every_row(postgres: TemporaryServer, service: str) -> None:
    process = await connect(postgres.url(service, service))
    try:
        tables = await process.fetch("SELECT quote_ident(tablename) FROM pg_tables WHERE schemaname = 'public'")
        for (table,) in tables:
            rights = await process.fetchval(
                "SELECT bool_and(has_table_privilege($1, one)) FROM unnest(ARRAY['SELECT', 'INSERT', 'UPDATE', 'DELETE']) AS one",
                table,
            )
            assert rights, table
        owners = await process.fetchval(
            "SELECT array_agg(DISTINCT tableowner) FROM pg_tables WHERE schemaname = 'public'"
        )
        assert owners == [f"{service}_owner"]
    finally:
        await process.close()


async def test_a_partition_of_the_claims_is_created_and_dropped_by_a_role_that_may_do_neither_itself(
    labour_engine: AsyncEngine,
) -> None:
    now = datetime(2031, 5, 20, tzinfo=UTC)
    retention = Retention(labour_engine, keep=KEEP, replay_horizon=KEEP)
    made = await retention.run_once(now - timedelta(days=200))

    report = await retention.run_once(now)

    assert (made.partitions_made, report.partitions_dropped, report.put_off) == (4, 3, 0)
    async with labour_engine.connect() as connection:
        owner = await connection.exec_driver_sql(
            "SELECT tableowner FROM pg_tables WHERE tablename = 'processed_event_2031_05'"
        )
        assert owner.scalar_one() == "labour_owner"


@pytest.mark.parametrize(
    ("call", "reason"),
    [
        ("create_claims_partition('2031-05-02')", "begins on the first day of a month"),
        ("drop_claims_partition('2031-05-01', '2031-05-31 23:59 UTC')", "has not ended before"),
        (
            "drop_claims_partition('2000-01-01', '2031-06-01 UTC')",
            'relation "public.processed_event_2000_01" does not exist',
        ),
    ],
)
async def test_the_functions_of_the_owner_change_whole_months_of_claims_only(
    labour_url: str, call: str, reason: str
) -> None:
    process = await connect(labour_url)
    try:
        with pytest.raises(asyncpg.PostgresError, match=reason):
            await process.execute(f"SELECT {call}")
    finally:
        await process.close()


async def test_a_month_with_a_claim_that_was_made_later_is_not_dropped(labour_url: str) -> None:
    month, process = Month.of(datetime.now(UTC)), await connect(labour_url)
    first = date(month.year, month.month, 1)
    try:
        await process.execute("INSERT INTO processed_event VALUES ('tests', $1, 'COMPLETED')", month.start)
        before = datetime.now(UTC) + timedelta(days=40)
        for made_at, dropped in ((before, False), (before - timedelta(days=1), True)):
            await process.execute("UPDATE processed_event SET claimed_at = $1", made_at)

            assert await process.fetchval("SELECT drop_claims_partition($1, $2)", first, before) is dropped
    finally:
        await process.close()


@pytest.mark.system
async def test_a_database_whose_processes_owned_it_is_handed_over_with_its_rows(tmp_path: Path) -> None:
    with temporary_server(tmp_path) as server:
        admin = await connect(server.dsn())
        await admin.execute("CREATE ROLE labour LOGIN PASSWORD 'labour'")
        await admin.execute("CREATE DATABASE labour OWNER labour")
        await admin.close()
        url = server.url("labour", "labour")
        migrate("labour", url)
        process = await connect(url)
        await process.execute("INSERT INTO event_sequence VALUES ('kept', 1)")

        await ensure_service_databases(server.dsn())
        # A process of the release before goes on in the meantime.
        await process.execute("UPDATE event_sequence SET last = 2")
        migrate("labour", owner_url(url))

        assert await process.fetchval("SELECT last FROM event_sequence") == 2
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await process.execute("TRUNCATE outbox")
        await process.close()
        engine = create_engine(url, process="test")
        assert (await Retention(engine, keep=KEEP, replay_horizon=KEEP).run_once(datetime.now(UTC))).put_off == 0
        await engine.dispose()
