"""The wiring of the API: settings in, Litestar application out."""

import asyncio
from collections.abc import AsyncGenerator

from litestar import Litestar, Router
from litestar.di import Provide

from labour.http.auth import Tokens
from labour.http.contractions import ContractionController
from labour.http.labours import LabourController, show_told
from labour.http.limits import limit_changes
from labour.http.live import Changes, LiveController
from labour.http.problems import PROBLEMS
from labour.http.responses import provide_commands, provide_queries
from labour.http.statistics import StatisticsOperations, get_statistics
from labour.http.subscribers import SubscriberController, SubscriptionController
from labour.settings import Settings
from messaging import relay
from messaging.database import create_engine
from messaging.limits import MAINTENANCE, REQUEST
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Listener, Waker
from servicekit.http_limits import OPERATOR_SLOTS
from servicekit.operator_api import OPERATIONS, operator_guard
from servicekit.process import watch_database
from servicekit.rate_limit import RateLimit
from servicekit.readiness import Readiness
from servicekit.web import create_app

CONTROLLERS = (LabourController, ContractionController, SubscriberController, SubscriptionController, LiveController)


def build(settings: Settings) -> Litestar:
    engine = create_engine(
        settings.database_url, process="labour-api", pool_size=settings.http.pool_size, limits=REQUEST
    )
    operators = create_engine(
        settings.database_url, process="labour-api:operators", pool_size=OPERATOR_SLOTS, limits=MAINTENANCE
    )
    waker = Waker(settings.database_url, relay.CHANNEL, process="labour-api")
    readiness = Readiness(settings.database_url, process="labour-api")
    tokens = Tokens(settings)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="labour", committed=waker.wake)

    limit = RateLimit(engine, limit=settings.rate_limit_per_minute)
    changes = Changes(engine)
    listener = Listener(settings.database_url, relay.CHANNEL, changes.wake, process="labour-api")

    async def lifespan(app: Litestar) -> AsyncGenerator[None, None]:
        watching = watch_database(engine, operators)
        running = (waker.run(), listener.run(), limit.run(), changes.run(app.state.stopping), watching)
        background = [asyncio.create_task(one) for one in running]
        yield
        for task in background:
            task.cancel()
        readiness.close()
        await engine.dispose()
        await operators.dispose()

    api = Router("/", route_handlers=[*CONTROLLERS, get_statistics], guards=[limit_changes(limit, tokens)])
    guards = [operator_guard(settings.operations_token)]
    operations = Router("/", route_handlers=[show_told, StatisticsOperations, *OPERATIONS], guards=guards)
    return create_app(
        title="FernLabour: Labour",
        version="1.1",
        description="Plan a labour, choose who is notified, begin it and complete it.",
        routes=[api, operations],
        problems=PROBLEMS,
        dependencies={
            "engine": Provide(lambda: operators, sync_to_thread=False),
            "retention": Provide(lambda: Retention.of(operators, settings), sync_to_thread=False),
            "run": Provide(provide_commands(units_of_work, tokens)),
            "read": Provide(provide_queries(engine, tokens)),
            "changes": Provide(lambda: changes, sync_to_thread=False),
        },
        ready=readiness.check,
        lifespan=lifespan,
        limits=settings.http,
        cors_origins=settings.cors_origins,
    )
