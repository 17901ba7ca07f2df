"""Runs migrations against NOTIFICATION_DATABASE_URL."""

import asyncio

from alembic import context

from notification.delivery import ledger
from notification.settings import Settings
from servicekit.migrations import migrate

asyncio.run(migrate(context, Settings.load().database_url, ledger.metadata))
