"""The processes of the Notification service: `python -m notification {api|consumer|consumer --drain|dispatcher|relay}`."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from messaging import relay as outbox_relay
from messaging.database import create_engine, ping
from messaging.hints import Hinter, Listener
from messaging.intake import Intake
from messaging.logs import get_logger
from messaging.process import run_role, until_ready
from messaging.pubsub import PubSub
from messaging.relay_process import run_relay
from messaging.unit_of_work import UnitOfWork
from messaging.web import serve
from notification import ledger
from notification.app import build
from notification.consumer import SUBSCRIPTIONS, create_consumer
from notification.dispatcher import Dispatcher
from notification.reactions import TOPICS
from notification.reconcile import Reconciler
from notification.settings import Settings
from notification.sms import Twilio

log = get_logger()


async def api(stop: asyncio.Event) -> None:
    settings = Settings.load()
    await serve(build(settings), host=settings.api_host, port=settings.api_port, stop=stop)


async def consumer(stop: asyncio.Event) -> None:
    async with _intake(stop) as intake:
        if intake is not None:
            await intake.run(stop)


async def drain(stop: asyncio.Event) -> None:
    """For scheduled jobs: handles what is there and ends."""
    async with _intake(stop) as intake:
        if intake is not None:
            log.info("drained", handled=await intake.drain())


@asynccontextmanager
async def _intake(stop: asyncio.Event) -> AsyncIterator[Intake | None]:
    settings = Settings.load()
    engine = create_engine(settings.database_url, process="notification-consumer")
    bus = PubSub(settings.project_id)
    hinter = Hinter(settings.database_url, ledger.CHANNEL, process="notification-consumer")

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=lambda: None)

    hinting = asyncio.create_task(hinter.run())
    try:
        ready = await until_ready("database", lambda: ping(engine), stop)
        ready = ready and await until_ready("bus", lambda: bus.ping(TOPICS[0]), stop)
        handle = create_consumer(units_of_work, bus, hinter.hint).handle
        yield Intake(bus, SUBSCRIPTIONS, handle) if ready else None
    finally:
        hinting.cancel()
        await bus.close()
        await engine.dispose()


async def dispatcher(stop: asyncio.Event) -> None:
    settings = Settings.load()
    engine = create_engine(settings.database_url, process="notification-dispatcher", pool_size=10)
    hinter = Hinter(settings.database_url, outbox_relay.CHANNEL, process="notification-dispatcher")

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=hinter.hint)

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
            background = [tasks.create_task(hinter.run()), tasks.create_task(listener.run())]
            reconciling = tasks.create_task(reconciler.run(stop))
            await sender.run(stop)
            await reconciling
            for task in background:
                task.cancel()
    finally:
        await provider.close()
        await engine.dispose()


async def relay(stop: asyncio.Event) -> None:
    settings = Settings.load()
    await run_relay(
        stop,
        name="notification-relay",
        database_url=settings.database_url,
        project_id=settings.project_id,
        poll_interval=settings.relay_poll_seconds,
        retention_days=settings.retention_days,
        replay_horizon_days=settings.replay_horizon_days,
    )


if __name__ == "__main__":
    run_role(
        "notification",
        {"api": api, "consumer": consumer, "consumer --drain": drain, "dispatcher": dispatcher, "relay": relay},
    )
