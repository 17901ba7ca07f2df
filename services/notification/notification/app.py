"""The API as an application: wiring only."""

import asyncio
from collections.abc import AsyncGenerator

from litestar import Litestar, Router
from litestar.di import Provide

from messaging import relay
from messaging.database import create_engine
from messaging.limits import MAINTENANCE, REQUEST
from messaging.pubsub import PubSub
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Waker
from notification.consumer import create_consumer
from notification.delivery import ledger
from notification.http.notifications import LedgerOperations, NotificationController
from notification.http.problems import PROBLEMS
from notification.http.push import PushController, PushVerifier
from notification.http.webhooks import TwilioController
from notification.settings import Settings
from servicekit.http_limits import OPERATOR_SLOTS
from servicekit.operator_api import OPERATIONS, operator_guard
from servicekit.process import watch_database
from servicekit.readiness import Readiness
from servicekit.web import create_app

NAME = "notification-api"


def build(settings: Settings) -> Litestar:
    """Call it inside the running event loop, which the client of the bus needs."""
    engine = create_engine(settings.database_url, process=NAME, pool_size=settings.http.pool_size, limits=REQUEST)
    operators = create_engine(
        settings.database_url, process=f"{NAME}:operators", pool_size=OPERATOR_SLOTS, limits=MAINTENANCE
    )
    readiness = Readiness(settings.database_url, process=NAME)
    wake_relay = Waker(settings.database_url, relay.CHANNEL, process=NAME)
    wake_dispatcher = Waker(settings.database_url, ledger.CHANNEL, process=NAME)
    bus = PubSub(settings.project_id)
    verifier = PushVerifier(settings)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=wake_relay.wake)

    consumer = create_consumer(units_of_work, bus, wake_dispatcher.wake)

    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        running = (wake_relay.run(), wake_dispatcher.run(), watch_database(engine, operators))
        background = [asyncio.create_task(one) for one in running]
        yield
        for task in background:
            task.cancel()
        readiness.close()
        await bus.close()
        await engine.dispose()
        await operators.dispose()

    operations = Router(
        "/",
        route_handlers=[NotificationController, LedgerOperations, *OPERATIONS],
        guards=[operator_guard(settings.operations_token)],
    )
    return create_app(
        title="FernLabour: Notification",
        description="The messages about each labour, and their delivery status.",
        routes=[TwilioController, PushController, operations],
        problems=PROBLEMS,
        dependencies={
            "engine": Provide(lambda: operators, sync_to_thread=False),
            "units_of_work": Provide(lambda: units_of_work, sync_to_thread=False),
            "retention": Provide(lambda: Retention.of(operators, settings), sync_to_thread=False),
            "settings": Provide(lambda: settings, sync_to_thread=False),
            "push_consumer": Provide(lambda: consumer, sync_to_thread=False),
            "push_verifier": Provide(lambda: verifier, sync_to_thread=False),
        },
        ready=readiness.check,
        lifespan=lifespan,
        limits=settings.http,
        operators=("/operations/", "/api/"),
    )
