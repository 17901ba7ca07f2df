"""The dispatcher process: a dispatcher and a reconciler that share one client of the provider. Wiring, and an hourly deletion."""

import asyncio
from dataclasses import replace

from structlog import get_logger

from messaging import metrics, relay
from messaging.backlog import watch_backlog
from messaging.backoff import wait
from messaging.database import create_engine, describe, is_transient, ping
from messaging.limits import WORK
from messaging.unit_of_work import UnitOfWork, UnitsOfWork
from messaging.wakeups import Listener, Waker
from notification.delivery import backlog, ledger
from notification.delivery.callbacks import STATUS_PATH
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.recorder import LABELS
from notification.delivery.twilio import Twilio
from notification.domain.notification import Limits, NotificationState
from notification.settings import DispatcherSettings
from servicekit.process import until_ready, watch_database

log = get_logger()

NAME = "notification-dispatcher"
HOUR = 3600.0  # seconds
# A dispatcher that is frozen in its take delays the takes of all others. The server ends its session after this time.
LIMITS = replace(WORK, idle=3.0)


async def forget_old_days(units_of_work: UnitsOfWork, stop: asyncio.Event) -> None:
    """Deletes the counts of segments of earlier days, in small transactions, once an hour."""
    while not stop.is_set():
        try:
            deleted = 1
            while deleted:
                async with units_of_work() as uow:
                    deleted = await ledger.forget_old_days(uow.connection)
        except Exception as error:
            if not is_transient(error):
                raise
            log.warning("old counts of segments are not deleted yet", error=describe(error))
        await wait(stop, HOUR)


async def run_dispatcher(stop: asyncio.Event, settings: DispatcherSettings) -> None:
    """Runs until `stop` is set and the calls under way are recorded."""
    engine = create_engine(settings.database_url, process=NAME, pool_size=10, limits=LIMITS)
    waker = Waker(settings.database_url, relay.CHANNEL, process=NAME)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=waker.wake)

    metrics.ledger_starts(NotificationState, LABELS.values())
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
        callback_url=f"{settings.public_url}{STATUS_PATH}",
        lease_seconds=settings.lease_seconds,
        call_within=settings.call_within,
        restored_at=settings.restored_at,
        countries=settings.countries,
        limits=Limits(settings.twilio_from, settings.per_second, settings.segments_per_number),
    )
    reconciler = Reconciler(
        units_of_work,
        provider,
        policies=settings.policies,
        quarantine=settings.quarantine_seconds,
        ask_interval=settings.ask_seconds,
        consent_within=settings.consent_seconds,
    )
    listener = Listener(settings.database_url, ledger.CHANNEL, dispatcher.wake, process=NAME)
    try:
        if not await until_ready("database", lambda: ping(engine), stop):
            return
        async with asyncio.TaskGroup() as tasks:
            running = (waker.run(), listener.run(), watch_database(engine), forget_old_days(units_of_work, stop))
            background = [tasks.create_task(one) for one in (*running, watch_backlog(engine, backlog.read))]
            reconciling = tasks.create_task(reconciler.run(stop))
            await dispatcher.run(stop)
            await reconciling
            for task in background:
                task.cancel()
    finally:
        await provider.close()
        await engine.dispose()
