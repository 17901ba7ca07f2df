"""The processes of the Labour service: `python -m labour {api|consumer|relay|statistics}`.

Each process imports only the modules it needs: importing is most of its start-up time.
"""

import asyncio

from servicekit.process import run_role
from servicekit.worker_settings import RelaySettings, WorkerSettings


async def api(stop: asyncio.Event) -> None:
    from labour.app import build
    from labour.settings import ApiSettings
    from servicekit.http.web import serve_apis

    settings = ApiSettings.load()
    await serve_apis(
        build(settings), host=settings.api_host, port=settings.api_port, operators=settings.operators, stop=stop
    )


async def consumer(stop: asyncio.Event) -> None:
    from labour.application.told import TOPICS
    from labour.consumer import create_consumer
    from servicekit.workers import run_consumer

    settings = WorkerSettings.load("labour")
    await run_consumer(
        stop,
        name="labour-consumer",
        database_url=settings.database_url,
        project_id=settings.project_id,
        topics=TOPICS,
        create=create_consumer,
    )


async def relay(stop: asyncio.Event) -> None:
    from contracts.registry import topics_of
    from servicekit.workers import run_relay

    await run_relay(stop, name="labour-relay", settings=RelaySettings.load("labour"), topics=topics_of("labour"))


async def statistics(stop: asyncio.Event) -> None:
    from labour.consumer import create_statistics_consumer
    from labour.domain.statistics import TOPICS
    from servicekit.workers import run_consumer

    settings = WorkerSettings.load("labour")
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
