"""The processes of the Notification service: `python -m notification {api|consumer|consumer --drain|dispatcher|relay}`.

Each imports only what it needs, which is most of the time that it takes to start.
"""

import asyncio
from functools import partial

from notification.settings import Settings
from servicekit.process import run_role


async def api(stop: asyncio.Event) -> None:
    from notification.app import build
    from servicekit.web import serve

    settings = Settings.load()
    await serve(build(settings), host=settings.api_host, port=settings.api_port, stop=stop)


async def consumer(stop: asyncio.Event, *, drain: bool = False) -> None:
    from notification.consumer import create_consumer
    from notification.delivery import ledger
    from notification.domain.reactions import TOPICS
    from servicekit.workers import run_consumer

    settings = Settings.load()
    await run_consumer(
        stop,
        name="notification-consumer",
        database_url=settings.database_url,
        project_id=settings.project_id,
        topics=TOPICS,
        create=create_consumer,
        wakes=ledger.CHANNEL,
        drain=drain,
    )


async def dispatcher(stop: asyncio.Event) -> None:
    from notification.delivery.process import run_dispatcher

    await run_dispatcher(stop, Settings.load())


async def relay(stop: asyncio.Event) -> None:
    from servicekit.workers import run_relay

    await run_relay(stop, name="notification-relay", settings=Settings.load())


if __name__ == "__main__":
    drain = partial(consumer, drain=True)
    run_role(
        "notification",
        {"api": api, "consumer": consumer, "consumer --drain": drain, "dispatcher": dispatcher, "relay": relay},
    )
