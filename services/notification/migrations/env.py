"""Runs migrations against NOTIFICATION_DATABASE_URL."""

import asyncio

from alembic import context

from notification.settings import Settings
from notification.storage import metadata
from servicekit.migrations import migrate

asyncio.run(migrate(context, Settings.load().database_url, metadata))
