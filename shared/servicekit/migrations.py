"""Runs a service's Alembic migrations while processes of the release before still work on the same tables.

One runner works at a time; replicas that start together wait. Each migration is a transaction of its own. A statement waits for
its lock for `LOCK_SECONDS` at most, because every later statement on the table queues behind it; then the migrations go on from
where they were, after a pause.

The role `<service>_owner` owns the tables. If the login is a member of it, the migrations act as that role. The processes act as
the role `<service>`, which may read and write rows and nothing else; it gets that right here, for tables that come later as well.
If there is no such owner, the login itself owns the tables.

`create_index`, `replace_check` and `backfill` commit what the migration did before. A migration that uses them may be run again
from its beginning, so all its statements must be repeatable (`IF NOT EXISTS`, `OR REPLACE`).
"""

import asyncio
from typing import Any

from alembic import op
from sqlalchemy import Connection, MetaData, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine
from structlog import get_logger

from messaging.database import create_engine
from messaging.limits import HOURS
from messaging.retention import ensure_partitions

log = get_logger()

LOCK_SECONDS = 3
ATTEMPTS = 100  # with a pause after each: about ten minutes
PAUSE_SECONDS = 3.0
BATCH = 1000  # rows that `backfill` changes in one transaction
_IN_USE = ("55P03", "40P01")  # lock not available in time; deadlock
_OWN = text("""
    SELECT set_config('role', rolname, false) FROM pg_roles
    WHERE rolname = :service || '_owner' AND pg_has_role(session_user, oid, 'SET')
""")
_GRANTS = (
    "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA public TO {0}",
    "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO {0}",
    "ALTER DEFAULT PRIVILEGES IN SCHEMA public GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {0}",
)
_KEEPS_PARTITIONS = text("SELECT to_regproc('create_claims_partition') IS NOT NULL")  # not in older revisions
_TRY = text("SELECT pg_try_advisory_lock(hashtext('servicekit.migrations'))")


async def migrate(context: Any, service: str, database_url: str, metadata: MetaData) -> None:
    """Called by each service's `migrations/env.py` with Alembic's context."""
    engine = create_engine(database_url, process="migrations", pool_size=2, limits=HOURS)

    def run(connection: Connection) -> None:
        context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=True)
        with context.begin_transaction():
            context.run_migrations()

    try:
        async with engine.connect() as holder:
            await _until_alone(await holder.execution_options(isolation_level="AUTOCOMMIT"))
            await _until_done(engine, service, run)
            async with engine.begin() as connection:
                if (await connection.execute(_OWN, {"service": service})).first():
                    for grant in _GRANTS:
                        await connection.execute(text(grant.format(service)))
                if (await connection.execute(_KEEPS_PARTITIONS)).scalar_one():
                    await ensure_partitions(connection)
    finally:
        await engine.dispose()


async def _until_alone(holder: AsyncConnection) -> None:
    """Takes a lock that lives as long as the connection. It asks again and again: a statement that waits for the lock would have
    a snapshot, for whose end CREATE INDEX CONCURRENTLY of the runner waits.
    """
    while not (await holder.execute(_TRY)).scalar_one():  # noqa: ASYNC110 (another session has it)
        await asyncio.sleep(0.2)


async def _until_done(engine: AsyncEngine, service: str, run: Any) -> None:
    for attempt in range(1, ATTEMPTS + 1):
        try:
            async with engine.connect() as connection:
                await connection.execute(_OWN, {"service": service})
                await connection.execute(text(f"SET lock_timeout = '{LOCK_SECONDS}s'"))
                await connection.commit()
                await connection.run_sync(run)
            return
        except DBAPIError as error:
            if getattr(error.orig, "sqlstate", None) not in _IN_USE or attempt == ATTEMPTS:
                raise
            log.warning("a table is in use: the migration tries again", attempt=attempt, retry_in=PAUSE_SECONDS)
            await asyncio.sleep(PAUSE_SECONDS)


def create_index(name: str, definition: str, *, unique: bool = False) -> None:
    """Create an index without blocking writers. `definition` is what follows ON. Deletes an invalid index of the same name, which
    an interrupted run leaves.
    """
    with op.get_context().autocommit_block():
        op.execute("SET lock_timeout = 0")  # it waits for transactions, and holds up none that comes later
        op.execute(f"DROP INDEX CONCURRENTLY IF EXISTS {name}")
        op.execute(f"CREATE {'UNIQUE ' if unique else ''}INDEX CONCURRENTLY {name} ON {definition}")
        op.execute(f"SET lock_timeout = '{LOCK_SECONDS}s'")


def replace_check(table: str, name: str, condition: str) -> None:
    """Replace a check constraint. The rows are compared with the new condition without blocking writers."""
    new = f"DROP CONSTRAINT IF EXISTS {name}, ADD CONSTRAINT {name} CHECK ({condition}) NOT VALID"
    op.execute(f"ALTER TABLE {table} {new}")
    with op.get_context().autocommit_block():
        op.execute(f"ALTER TABLE {table} VALIDATE CONSTRAINT {name}")


def backfill(table: str, assignments: str, *, where: str) -> None:
    """Change rows in the order of their ids, `BATCH` in a transaction, so that no row is locked for long."""
    statement = text(f"""
        WITH batch AS MATERIALIZED (
            SELECT id FROM {table} WHERE id > CAST(:last AS uuid) AND ({where}) ORDER BY id LIMIT {BATCH} FOR UPDATE),
        changed AS (UPDATE {table} SET {assignments} FROM batch WHERE {table}.id = batch.id)
        SELECT id FROM batch ORDER BY id DESC LIMIT 1
    """)  # noqa: S608 (a migration's own words)
    last: object = "00000000-0000-0000-0000-000000000000"
    with op.get_context().autocommit_block():
        while last := op.get_bind().execute(statement, {"last": last}).scalar_one_or_none():
            pass
