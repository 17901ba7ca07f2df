"""Whether the migrations of a service make the tables that its code declares."""

from typing import Any

from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import Connection, MetaData
from sqlalchemy.ext.asyncio import AsyncEngine


async def schema_differences(engine: AsyncEngine, declared: MetaData) -> list[Any]:
    """The differences, without the indexes and the tables of other packages that only the migrations know."""

    def differences(connection: Connection) -> list[Any]:
        found = compare_metadata(MigrationContext.configure(connection), declared)
        return [one for one in found if not _only_migrated(one, declared)]

    async with engine.connect() as connection:
        return await connection.run_sync(differences)


def _only_migrated(difference: Any, declared: MetaData) -> bool:
    kind, subject, *_ = difference
    return kind == "remove_index" or (kind == "remove_table" and subject.name not in declared.tables)
