"""The dispatcher process: a dispatcher and a reconciler that share one client of the provider. Wiring only."""

import asyncio

from messaging import relay
from messaging.database import create_engine, ping
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Listener, Waker
from notification.delivery import ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Twilio
from notification.settings import Settings
from servicekit.process import until_ready, watch_database

NAME = "notification-dispatcher"


async def run_dispatcher(stop: asyncio.Event, settings: Settings) -> None:
    """Runs until `stop` is set and the calls under way are recorded."""
    engine = create_engine(settings.database_url, process=NAME, pool_size=10)
    waker = Waker(settings.database_url, relay.CHANNEL, process=NAME)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=waker.wake)

    provider = Twilio(
        account_sid=settings.twilio_account_sid,
        auth_token=settings.twilio_auth_token,
        sender=settings.twilio_from,
        base_url=settings.twilio_base_url,
        timeout=settings.timeout_seconds,
    )
    dispatcher = Dispatcher(
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
    listener = Listener(settings.database_url, ledger.CHANNEL, dispatcher.wake, process=NAME)
    try:
        if not await until_ready("database", lambda: ping(engine), stop):
            return
        async with asyncio.TaskGroup() as tasks:
            background = [tasks.create_task(one) for one in (waker.run(), listener.run(), watch_database(engine))]
            reconciling = tasks.create_task(reconciler.run(stop))
            await dispatcher.run(stop)
            await reconciling
            for task in background:
                task.cancel()
    finally:
        await provider.close()
        await engine.dispose()
