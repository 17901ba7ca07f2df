"""Runs migrations against LABOUR_DATABASE_URL."""

import asyncio

from alembic import context

from labour import storage
from labour.settings import Settings
from servicekit.migrations import migrate

asyncio.run(migrate(context, Settings.load().database_url, storage.metadata))
