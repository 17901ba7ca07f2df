"""Runs migrations against NOTIFICATION_DATABASE_URL."""

import asyncio

from alembic import context

from notification.storage import metadata
from servicekit.migrations import migrate
from servicekit.worker_settings import MigrationSettings

asyncio.run(migrate(context, "notification", MigrationSettings.load("notification").database_url, metadata))
