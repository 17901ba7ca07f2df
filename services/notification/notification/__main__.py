"""The processes of the Notification service: `python -m notification {api|consumer|consumer --drain|dispatcher|relay}`.

Each imports only what it needs, which is most of the time that it takes to start.
"""

import asyncio
from functools import partial

from notification.settings import Settings
from servicekit.process import run_role, until_ready


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
    from messaging import relay as outbox_relay
    from messaging.database import create_engine, ping
    from messaging.unit_of_work import UnitOfWork
    from messaging.wakeups import Listener, Waker
    from notification.delivery import ledger
    from notification.delivery.dispatcher import Dispatcher
    from notification.delivery.reconciler import Reconciler
    from notification.delivery.twilio import Twilio

    settings = Settings.load()
    engine = create_engine(settings.database_url, process="notification-dispatcher", pool_size=10)
    waker = Waker(settings.database_url, outbox_relay.CHANNEL, process="notification-dispatcher")

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=waker.wake)

    provider = Twilio(
        account_sid=settings.twilio_account_sid,
        auth_token=settings.twilio_auth_token,
        sender=settings.twilio_from,
        base_url=settings.twilio_base_url,
        timeout=settings.timeout_seconds,
    )
    sender = Dispatcher(
        units_of_work,
        provider,
        callback_url=f"{settings.public_url}/webhooks/twilio/status",
        lease_seconds=settings.lease_seconds,
        call_within=settings.call_within,
        per_second=settings.per_second,
    )
    reconciler = Reconciler(
        units_of_work,
        provider,
        policies=settings.policies,
        quarantine=settings.quarantine_seconds,
        ask_interval=settings.ask_seconds,
    )
    listener = Listener(settings.database_url, ledger.CHANNEL, sender.wake, process="notification-dispatcher")
    try:
        if not await until_ready("database", lambda: ping(engine), stop):
            return
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(waker.run()), tasks.create_task(listener.run())]
            reconciling = tasks.create_task(reconciler.run(stop))
            await sender.run(stop)
            await reconciling
            for task in background:
                task.cancel()
    finally:
        await provider.close()
        await engine.dispose()


async def relay(stop: asyncio.Event) -> None:
    from servicekit.workers import run_relay

    await run_relay(stop, name="notification-relay", settings=Settings.load())


if __name__ == "__main__":
    run_role(
        "notification",
        {
            "api": api,
            "consumer": consumer,
            "consumer --drain": partial(consumer, drain=True),
            "dispatcher": dispatcher,
            "relay": relay,
        },
    )
