"""Runs migrations against LABOUR_DATABASE_URL."""

import asyncio

from alembic import context

from labour import store
from labour.settings import Settings
from messaging.migrations import migrate

asyncio.run(migrate(context, Settings.load().database_url, store.metadata))
