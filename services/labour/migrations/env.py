"""Runs migrations against LABOUR_DATABASE_URL."""

import asyncio

from alembic import context

from labour import storage
from servicekit.migrations import migrate
from servicekit.worker_settings import MigrationSettings

asyncio.run(migrate(context, "labour", MigrationSettings.load("labour").database_url, storage.metadata))
