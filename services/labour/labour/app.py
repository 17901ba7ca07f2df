"""The wiring of the API: settings in, Litestar applications out."""

from collections.abc import AsyncGenerator

from litestar import Litestar, Router
from litestar.di import Provide

from labour.http.auth import Tokens
from labour.http.contractions import ContractionController
from labour.http.document import FOR_OPERATORS, PAGE_USER, PUBLIC
from labour.http.labours import LabourController, show_told
from labour.http.limits import limit_requests, limit_streams
from labour.http.live import Changes, LiveController
from labour.http.problems import PROBLEMS, REFUSALS
from labour.http.responses import provide_commands, provide_queries
from labour.http.statistics import StatisticsOperations, get_statistics
from labour.http.subscribers import SubscriberController, SubscriptionController
from labour.settings import ApiSettings
from messaging import relay
from messaging.database import create_engine
from messaging.limits import MAINTENANCE, REQUEST
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Listener, Waker
from servicekit.http.api_document import BEARER
from servicekit.http.http_limits import OPERATOR_SLOTS
from servicekit.http.operator_api import OPERATIONS
from servicekit.http.rate_limit import RateLimit
from servicekit.http.readiness import Readiness
from servicekit.http.web import Apis, create_app, create_operator_app
from servicekit.process import background, watch_database

CONTROLLERS = (LabourController, ContractionController, SubscriberController, SubscriptionController)


def build(settings: ApiSettings) -> Apis:
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

    limit_of_changes = RateLimit(engine, limit=settings.rate_limit_per_minute)
    limit_of_reads = RateLimit(engine, limit=settings.read_limit_per_minute)
    changes = Changes(engine)
    listener = Listener(settings.database_url, relay.CHANNEL, changes.wake, process="labour-api")

    async def lifespan(app: Litestar) -> AsyncGenerator[None, None]:
        watching = watch_database(engine, operators)
        limiting = (limit_of_changes.run(), limit_of_reads.run())
        async with background(waker.run(), listener.run(), *limiting, changes.run(app.state.stopping), watching):
            yield
        readiness.close()
        await engine.dispose()
        await operators.dispose()

    live = Router("/", route_handlers=[LiveController], middleware=[limit_streams(tokens)])
    limits = limit_requests(limit_of_changes, limit_of_reads, tokens)
    api = Router("/", route_handlers=[*CONTROLLERS, live, get_statistics], guards=[limits], security=[{BEARER: []}])
    local_names = ("labour-api",) if settings.local else ()
    public = create_app(
        PUBLIC,
        routes=[api],
        problems=PROBLEMS,
        dependencies={
            "run": Provide(provide_commands(units_of_work, tokens, settings.allowances)),
            "read": Provide(provide_queries(engine, tokens)),
            "changes": Provide(lambda: changes, sync_to_thread=False),
        },
        ready=readiness.check,
        lifespan=lifespan,
        limits=settings.http,
        cors_origins=settings.cors_origins,
        local_names=local_names,
        page_token=(lambda: tokens.issue(PAGE_USER)) if tokens.is_local else None,
        log_key=settings.security_log_key,
        refusals=REFUSALS,
    )
    for_operators = create_operator_app(
        FOR_OPERATORS,
        routes=[show_told, StatisticsOperations, *OPERATIONS],
        problems=PROBLEMS,
        dependencies={
            "engine": Provide(lambda: operators, sync_to_thread=False),
            "retention": Provide(lambda: Retention.of(operators, settings), sync_to_thread=False),
        },
        limits=settings.http,
        operators=settings.operators,
        local_names=local_names,
    )
    return Apis(public, for_operators)
