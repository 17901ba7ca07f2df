"""The wiring of the API: settings in, Litestar applications out."""

from collections.abc import AsyncGenerator
from urllib.parse import urlsplit

from litestar import Litestar, Router
from litestar.di import Provide

from messaging import metrics, relay
from messaging.database import create_engine
from messaging.limits import MAINTENANCE, REQUEST
from messaging.pubsub import PubSub
from messaging.retention import Retention
from messaging.unit_of_work import UnitOfWork
from messaging.wakeups import Waker
from notification.consumer import NAME as CONSUMER
from notification.consumer import create_consumer
from notification.delivery import ledger
from notification.delivery.callbacks import STATUS_PATH
from notification.domain.notification import NotificationState
from notification.domain.reactions import TOPICS
from notification.http.document import FOR_OPERATORS, PUBLIC
from notification.http.notifications import LedgerOperations, NotificationController
from notification.http.problems import PROBLEMS
from notification.http.push import PushController, pubsub_only
from notification.http.webhooks import TwilioController
from notification.settings import ApiSettings
from servicekit.http.api_document import BEARER
from servicekit.http.http_limits import OPERATOR_SLOTS
from servicekit.http.operator_api import OPERATIONS
from servicekit.http.readiness import Readiness
from servicekit.http.web import Apis, create_app, create_operator_app
from servicekit.process import background, watch_database

NAME = "notification-api"
REFUSALS = {"/webhooks/": "bad-signature", "/pubsub/": "push-refused"}  # their kinds in the security log


def build(settings: ApiSettings) -> Apis:
    """Build the applications. Call it inside the running event loop, which the client of the bus needs."""
    engine = create_engine(settings.database_url, process=NAME, pool_size=settings.http.pool_size, limits=REQUEST)
    operators = create_engine(
        settings.database_url, process=f"{NAME}:operators", pool_size=OPERATOR_SLOTS, limits=MAINTENANCE
    )
    readiness = Readiness(settings.database_url, process=NAME)
    wake_relay = Waker(settings.database_url, relay.CHANNEL, process=NAME)
    wake_dispatcher = Waker(settings.database_url, ledger.CHANNEL, process=NAME)
    bus = PubSub(settings.project_id)
    metrics.ledger_starts(NotificationState)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=wake_relay.wake)

    def operators_units_of_work() -> UnitOfWork:
        return UnitOfWork(operators, source="notification", committed=wake_relay.wake)

    subscriptions = frozenset(bus.subscription_path(f"{CONSUMER}.{topic}") for topic in TOPICS)
    consumer = create_consumer(
        units_of_work, bus, wake_dispatcher.wake, consent=settings.consent, most_waiting=settings.most_waiting
    )

    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        async with background(wake_relay.run(), wake_dispatcher.run(), watch_database(engine, operators)):
            yield
        readiness.close()
        await bus.close()
        await engine.dispose()
        await operators.dispose()

    push = Router("/", route_handlers=[PushController], guards=[pubsub_only(settings)], security=[{BEARER: []}])
    public = create_app(
        PUBLIC,
        routes=[TwilioController, push],
        problems=PROBLEMS,
        dependencies={
            "units_of_work": Provide(lambda: units_of_work, sync_to_thread=False),
            "settings": Provide(lambda: settings, sync_to_thread=False),
            "push_subscriptions": Provide(lambda: subscriptions, sync_to_thread=False),
            "wake_dispatcher": Provide(lambda: wake_dispatcher.wake, sync_to_thread=False),
            "push_consumer": Provide(lambda: consumer, sync_to_thread=False),
        },
        ready=readiness.check,
        lifespan=lifespan,
        limits=settings.http,
        local_names=(NAME, urlsplit(settings.public_url).hostname or NAME) if settings.local else (),
        log_kinds=REFUSALS,
        callback=STATUS_PATH,
    )
    for_operators = create_operator_app(
        FOR_OPERATORS,
        routes=[NotificationController, LedgerOperations, *OPERATIONS],
        problems=PROBLEMS,
        dependencies={
            "engine": Provide(lambda: operators, sync_to_thread=False),
            "units_of_work": Provide(lambda: operators_units_of_work, sync_to_thread=False),
            "retention": Provide(lambda: Retention.of(operators, settings), sync_to_thread=False),
        },
        limits=settings.http,
        operators=settings.operators,
        local_names=(NAME,) if settings.local else (),
    )
    return Apis(public, for_operators)
