"""Our dispatcher sends what is pending in the ledger, as its process does. The messages become due while it runs."""

import asyncio
import os
from typing import Any

from e2e.experiments.bench.program import Stopwatch
from e2e.support.databases import connect
from notification.delivery import ledger
from notification.delivery.process import run_dispatcher
from notification.settings import DispatcherSettings

_UNSENT = "SELECT EXISTS (SELECT FROM notification WHERE state IN ('PENDING', 'SENDING'))"
_DUE = "UPDATE notification SET next_attempt_at = now()"
LOOK, SETTLE = 0.01, 0.5  # seconds


async def measure(*, url: str, base_url: str, count: int) -> dict[str, Any]:
    variables = {"NOTIFICATION_DATABASE_URL": url, "TWILIO_BASE_URL": base_url}
    stop, watcher = asyncio.Event(), await connect(url)
    settings = DispatcherSettings.load({**os.environ, **variables})
    running = asyncio.create_task(run_dispatcher(stop, settings))
    await asyncio.sleep(SETTLE)  # until it is connected, as it is in production when work arrives
    await watcher.execute(_DUE)
    watch = Stopwatch()
    await watcher.execute(f"NOTIFY {ledger.CHANNEL}")
    while not running.done() and await watcher.fetchval(_UNSENT):  # noqa: ASYNC110  (the database has no event to wait for)
        await asyncio.sleep(LOOK)
    result = watch.read(await watcher.fetchval("SELECT count(*) FROM notification WHERE state = 'SENT'"))
    stop.set()
    await running
    await watcher.close()
    return result
