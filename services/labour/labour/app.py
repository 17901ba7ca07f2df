"""The API as an application: wiring only."""

import asyncio
from collections.abc import AsyncGenerator

from litestar import Litestar, Router
from litestar.di import Provide

from labour.api import LabourController
from labour.auth import Tokens, provide_caller
from labour.contractions_api import ContractionController
from labour.once import provide_once
from labour.people_api import PeopleController, SubscriptionController
from labour.problems import PROBLEMS
from labour.settings import Settings
from messaging import relay
from messaging.database import create_engine, ping
from messaging.hints import Hinter
from messaging.operations import ClaimOperations, OutboxOperations, operator_guard
from messaging.unit_of_work import UnitOfWork
from messaging.web import create_app


def build(settings: Settings) -> Litestar:
    engine = create_engine(settings.database_url, process="labour-api")
    hinter = Hinter(settings.database_url, relay.CHANNEL, process="labour-api")

    tokens = Tokens(settings)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="labour", committed=hinter.hint)

    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        hinting = asyncio.create_task(hinter.run(), name="hints")
        yield
        hinting.cancel()
        await engine.dispose()

    operations = Router(
        "/", route_handlers=[OutboxOperations, ClaimOperations], guards=[operator_guard(settings.operations_token)]
    )
    return create_app(
        title="FernLabour: Labour",
        description="Plan a labour, say who shall be told, begin it, complete it.",
        routes=[LabourController, ContractionController, PeopleController, SubscriptionController, operations],
        problems=PROBLEMS,
        dependencies={
            "units_of_work": Provide(lambda: units_of_work, sync_to_thread=False),
            "once": Provide(provide_once),
            "caller": Provide(provide_caller),
            "tokens": Provide(lambda: tokens, sync_to_thread=False),
        },
        ready=lambda: ping(engine),
        lifespan=lifespan,
    )
