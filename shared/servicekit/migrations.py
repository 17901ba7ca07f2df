"""Runs a service's Alembic migrations. An advisory lock lets one runner in at a time; replicas that start together wait."""

from typing import Any

from sqlalchemy import Connection, MetaData, text

from messaging.database import create_engine
from messaging.limits import HOURS
from messaging.retention import ensure_partitions


async def migrate(context: Any, database_url: str, metadata: MetaData) -> None:
    """Called by each service's `migrations/env.py` with Alembic's context."""
    engine = create_engine(database_url, process="migrations", pool_size=1, limits=HOURS)

    def run(connection: Connection) -> None:
        context.configure(connection=connection, target_metadata=metadata, transaction_per_migration=False)
        with context.begin_transaction():
            context.run_migrations()

    try:
        async with engine.begin() as connection:
            await connection.execute(text("SELECT pg_advisory_xact_lock(hashtext('servicekit.migrations'))"))
            await connection.run_sync(run)
            await ensure_partitions(connection)
    finally:
        await engine.dispose()
