"""infra/gcp/databases.sql on a real PostgreSQL: who owns a database there, and who may do what in it."""

import asyncio
import subprocess
from collections.abc import Sequence
from pathlib import Path

import asyncpg
import pytest

from fern.runtime import postgres
from fern.runtime.jobs import migrate
from fern.settings import PROJECT_ROOT


def account(name: str) -> str:
    """The database user of a service account of Google Cloud."""
    return f"fern-{name}@my-project.iam"


@pytest.mark.system
async def test_migrations_own_a_database_processes_write_its_rows_and_a_reader_changes_nothing(tmp_path: Path) -> None:
    with postgres.temporary_server(tmp_path) as server:
        admin = await asyncpg.connect(server.dsn())
        await admin.execute("CREATE ROLE admin LOGIN CREATEDB CREATEROLE PASSWORD 'admin'")
        for name in ("labour-api", "labour-relay", "labour-migrations", "notification-api", "audit"):
            await admin.execute(f"""CREATE ROLE "{account(name)}" LOGIN PASSWORD 'any'""")
        await admin.close()
        own = await asyncpg.connect(server.dsn("postgres", "admin"))
        await own.execute("CREATE DATABASE labour")
        processes = [account("labour-api"), account("labour-relay")]

        async def login(name: str, database: str = "labour") -> asyncpg.Connection:
            return await asyncpg.connect(server.dsn(database, "postgres"), user=account(name), password="any")

        def upgrade(name: str) -> None:
            role = account(name).replace("@", "%40")
            migrate("labour", server.url("labour", "postgres").replace("postgres:postgres", f"{role}:any"))

        # As a release without an owner left it: all accounts acted as one role, which owned the tables.
        await own.execute(
            "CREATE ROLE labour NOLOGIN; GRANT labour TO CURRENT_USER; ALTER DATABASE labour OWNER TO labour"
        )
        await own.execute("ALTER DATABASE labour SET role = 'labour'")
        for name in (*processes, account("labour-migrations")):
            await own.execute(f'GRANT labour TO "{name}"')
        await own.close()
        await asyncio.to_thread(upgrade, "labour-migrations")
        running = await login("labour-relay")
        for _ in range(2):
            await run_roles(
                server.dsn("labour", "admin"), "labour", account("labour-migrations"), processes, [account("audit")]
            )
        await running.execute("DELETE FROM outbox")  # it goes on in the meantime
        await running.close()
        await asyncio.to_thread(upgrade, "labour-migrations")

        relay = await login("labour-relay")
        assert await relay.fetchval(
            "SELECT array_agg(DISTINCT tableowner) FROM pg_tables WHERE schemaname = 'public'"
        ) == ["labour_owner"]
        await relay.execute("SELECT create_claims_partition('2031-05-01')")
        await relay.execute("INSERT INTO event_sequence VALUES ('kept', 1); DELETE FROM processed_event_2031_05")
        for statement in ("DROP TABLE outbox", "TRUNCATE outbox", "CREATE TABLE mine ()", "SET ROLE labour_owner"):
            with pytest.raises(asyncpg.InsufficientPrivilegeError):
                await relay.execute(statement)
        await relay.close()
        audit = await login("audit")
        assert await audit.fetchval("SELECT count(*) FROM event_sequence") == 1
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await audit.execute("DELETE FROM event_sequence")
        await audit.close()
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await login("notification-api")


async def run_roles(dsn: str, service: str, owner: str, members: Sequence[str], readers: Sequence[str]) -> None:
    script = PROJECT_ROOT / "infra/gcp/databases.sql"
    values = {"service": service, "owners": owner, "members": ",".join(members), "readers": ",".join(readers)}
    options = [option for name, value in values.items() for option in ("-v", f"{name}={value}")]
    psql = [str(postgres.binary("psql")), "-v", "ON_ERROR_STOP=1", *options, "-d", dsn, "-f", str(script)]
    done = await asyncio.to_thread(subprocess.run, psql, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
