"""Runs migrations against NOTIFICATION_DATABASE_URL."""

import asyncio

from alembic import context

from messaging.migrations import migrate
from notification import ledger
from notification.settings import Settings

asyncio.run(migrate(context, Settings.load().database_url, ledger.metadata))
