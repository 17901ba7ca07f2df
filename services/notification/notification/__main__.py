"""The processes of the Notification service: `python -m notification {api|consumer|consumer --drain|dispatcher|relay}`.

Each process imports only the modules it needs: importing is most of its start-up time.
"""

import asyncio
from functools import partial

from notification.settings import ApiSettings, ConsumerSettings, DispatcherSettings
from servicekit.process import run_role
from servicekit.worker_settings import RelaySettings


async def api(stop: asyncio.Event) -> None:
    from notification.app import build
    from servicekit.http.web import serve_apis

    settings = ApiSettings.load()
    await serve_apis(
        build(settings), host=settings.api_host, port=settings.api_port, operators=settings.operators, stop=stop
    )


async def consumer(stop: asyncio.Event, *, drain: bool = False) -> None:
    from notification.consumer import create_consumer
    from notification.delivery import ledger
    from notification.domain.reactions import TOPICS
    from servicekit.workers import run_consumer

    settings = ConsumerSettings.load()
    await run_consumer(
        stop,
        name="notification-consumer",
        database_url=settings.database_url,
        project_id=settings.project_id,
        topics=TOPICS,
        create=partial(create_consumer, consent=settings.consent, most_waiting=settings.most_waiting),
        wakes=ledger.CHANNEL,
        drain=drain,
    )


async def dispatcher(stop: asyncio.Event) -> None:
    from notification.delivery.process import run_dispatcher

    await run_dispatcher(stop, DispatcherSettings.load())


async def relay(stop: asyncio.Event) -> None:
    from contracts.registry import topics_of
    from servicekit.workers import run_relay

    await run_relay(
        stop, name="notification-relay", settings=RelaySettings.load("notification"), topics=topics_of("notification")
    )


if __name__ == "__main__":
    drain = partial(consumer, drain=True)
    run_role(
        "notification",
        {"api": api, "consumer": consumer, "consumer --drain": drain, "dispatcher": dispatcher, "relay": relay},
    )
