"""REST routes for the statistics of a labour, and for operators to verify and rebuild all of them."""

from datetime import UTC, datetime
from typing import Annotated
from uuid import UUID

from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import QueryParameter
from sqlalchemy.ext.asyncio import AsyncEngine

from labour.application import statistics
from labour.application.statistics import DifferenceBatch
from labour.domain.statistics import Statistics
from labour.http.responses import Id, Read
from messaging.database import driver_connection

FIRST = UUID(int=0)
Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="The maximum number of labours in a batch.")]
After = Annotated[UUID, QueryParameter(description="The `next` of the previous batch; left out for the first one.")]


@get(
    "/api/v1/labours/{labour_id:uuid}/statistics",
    operation_id="get_statistics",
    summary="Get the statistics of contractions and phases.",
    tags=["contractions"],
    refuses={403: "not-yours"},
)
async def get_statistics(read: Read, labour_id: Id) -> Statistics:
    """The mother and birth partners may. The numbers are projected from events, so they follow a change within seconds."""
    return await read(statistics.get_statistics, labour_id, datetime.now(UTC))


class StatisticsOperations(Controller):
    path = "/operations/statistics"
    tags = ("operations",)

    @get(
        "/differences",
        operation_id="list_differences",
        summary="List balances that are not the sum of their postings.",
    )
    async def list_differences(
        self, engine: NamedDependency[AsyncEngine], after: After = FIRST, limit: Limit = 500
    ) -> DifferenceBatch:
        """One batch of labours per call. Changes nothing."""
        async with driver_connection(engine) as connection:
            return await statistics.find_differences(connection, after=after, limit=limit)

    @post(
        "/rebuild",
        operation_id="rebuild_balances",
        status_code=200,
        summary="Set balances to the sum of their postings.",
    )
    async def rebuild(
        self, engine: NamedDependency[AsyncEngine], after: After = FIRST, limit: Limit = 500
    ) -> DifferenceBatch:
        """One batch of labours per call, in one transaction. Returns what was different."""
        async with driver_connection(engine) as connection:
            return await statistics.rebuild(connection, after=after, limit=limit)
