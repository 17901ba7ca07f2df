"""The API as an application: wiring only."""

import asyncio
from collections.abc import AsyncGenerator

from litestar import Litestar, Router
from litestar.di import Provide

from labour.api import PROBLEMS, LabourController
from labour.contractions_api import ContractionController
from labour.limits import limit_changes
from labour.once import provide_once
from labour.settings import Settings
from messaging import relay
from messaging.database import create_engine, ping
from messaging.hints import Hinter
from messaging.operations import ClaimOperations, OutboxOperations, operator_guard
from messaging.rate_limit import RateLimit
from messaging.unit_of_work import UnitOfWork
from messaging.web import create_app


def build(settings: Settings) -> Litestar:
    engine = create_engine(settings.database_url, process="labour-api")
    hinter = Hinter(settings.database_url, relay.CHANNEL, process="labour-api")

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="labour", committed=hinter.hint)

    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        hinting = asyncio.create_task(hinter.run(), name="hints")
        yield
        hinting.cancel()
        await engine.dispose()

    limit = RateLimit(engine, limit=settings.rate_limit_per_minute)
    api = Router("/", route_handlers=[LabourController, ContractionController], guards=[limit_changes(limit)])
    operations = Router(
        "/", route_handlers=[OutboxOperations, ClaimOperations], guards=[operator_guard(settings.operations_token)]
    )
    return create_app(
        title="FernLabour: Labour",
        description="Plan a labour, say who shall be told, begin it, complete it.",
        routes=[api, operations],
        problems=PROBLEMS,
        dependencies={
            "units_of_work": Provide(lambda: units_of_work, sync_to_thread=False),
            "once": Provide(provide_once),
        },
        ready=lambda: ping(engine),
        lifespan=lifespan,
    )
