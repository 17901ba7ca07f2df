"""The processes of the Labour service: `python -m labour {api|consumer|relay|statistics}`.

Each process imports only the modules it needs: importing is most of its start-up time.
"""

import asyncio

from labour.settings import Settings
from servicekit.process import run_role


async def api(stop: asyncio.Event) -> None:
    from labour.app import build
    from servicekit.web import serve

    settings = Settings.load()
    await serve(build(settings), host=settings.api_host, port=settings.api_port, stop=stop)


async def consumer(stop: asyncio.Event) -> None:
    from labour.application.told import TOPICS
    from labour.consumer import create_consumer
    from servicekit.workers import run_consumer

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
    from servicekit.workers import run_relay

    await run_relay(stop, name="labour-relay", settings=Settings.load())


async def statistics(stop: asyncio.Event) -> None:
    from labour.consumer import create_statistics_consumer
    from labour.domain.statistics import TOPICS
    from servicekit.workers import run_consumer

    settings = Settings.load()
    await run_consumer(
        stop,
        name="labour-statistics",
        database_url=settings.database_url,
        project_id=settings.project_id,
        topics=TOPICS,
        create=create_statistics_consumer,
    )


if __name__ == "__main__":
    run_role("labour", {"api": api, "consumer": consumer, "relay": relay, "statistics": statistics})
