"""Sending as the articles' system does: the synchronous Twilio client in 50 threads, and one commit for each message."""

import asyncio
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

from sqlalchemy import select, update
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession, create_async_engine
from twilio.rest import Client

from e2e.experiments.bench.articles.tables import Notification, connect
from e2e.experiments.bench.program import Stopwatch

THREADS = 50


class Sender:
    def __init__(self, engine: AsyncEngine, base_url: str) -> None:
        self._engine, self._threads = engine, ThreadPoolExecutor(THREADS)
        self._client = Client("AC" + "0" * 32, "local-twilio-token")
        self._client.api.base_url = base_url

    async def send(self, notification: Notification) -> None:
        call = partial(
            self._client.messages.create, to=notification.phone, from_="+15005550006", body=notification.body
        )
        message = await asyncio.get_running_loop().run_in_executor(self._threads, call)
        async with AsyncSession(self._engine) as session, session.begin():
            row = update(Notification).where(Notification.id == notification.id)
            await session.execute(row.values(status="SENT", external_id=message.sid))


async def measure(*, url: str, base_url: str, count: int) -> dict[str, Any]:
    engine = create_async_engine(url, pool_size=THREADS)
    sender = Sender(engine, base_url)
    await connect(engine, THREADS)
    watch = Stopwatch()
    async with AsyncSession(engine) as session:
        waiting = iter((await session.scalars(select(Notification).where(Notification.status == "CREATED"))).all())

    async def work() -> None:
        for notification in waiting:
            await sender.send(notification)

    await asyncio.gather(*(work() for _ in range(THREADS)))
    result = watch.read(count)
    await engine.dispose()
    return result
