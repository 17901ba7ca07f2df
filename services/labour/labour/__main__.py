"""The processes of the Labour service: `python -m labour {api|consumer|relay}`."""

import asyncio

from labour.app import build
from labour.settings import Settings
from labour.told import TOPICS, create_consumer
from messaging.process import run_role
from messaging.web import serve
from messaging.workers import run_consumer, run_relay


async def api(stop: asyncio.Event) -> None:
    settings = Settings.load()
    await serve(build(settings), host=settings.api_host, port=settings.api_port, stop=stop)


async def consumer(stop: asyncio.Event) -> None:
    settings = Settings.load()
    await run_consumer(
        stop,
        name="labour-consumer",
        database_url=settings.database_url,
        project_id=settings.project_id,
        topics=TOPICS,
        create=create_consumer,
    )


async def relay(stop: asyncio.Event) -> None:
    await run_relay(stop, name="labour-relay", settings=Settings.load())


if __name__ == "__main__":
    run_role("labour", {"api": api, "consumer": consumer, "relay": relay})
