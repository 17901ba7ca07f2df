"""Routes for operators that count the rows of a service: those that wait, which is cheap, and all, which is not."""

import msgspec
from litestar import get
from litestar.di import NamedDependency
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging import claims, outbox
from messaging.backlog import OutboxBacklog, outbox_backlog, read_once
from messaging.claims import ClaimCounts
from messaging.database import driver_connection
from messaging.outbox import OutboxCounts


class Pipeline(msgspec.Struct, frozen=True):
    outbox: OutboxBacklog


class Totals(msgspec.Struct, frozen=True):
    """`topics` counts the recorded events by topic, `held` those of them that are parked or discarded. The topology knows which
    consumers take which topic.
    """

    outbox: OutboxCounts
    topics: dict[str, int]
    held: dict[str, int]
    claims: ClaimCounts


@get(
    "/operations/pipeline",
    operation_id="count_pipeline",
    summary="Count the rows of the outbox that wait.",
    tags=["operations"],
)
async def show_pipeline(engine: NamedDependency[AsyncEngine]) -> Pipeline:
    """Reads a bounded number of rows, from indexes, at any size of the table: call it as often as you like. 10,000 means 10,000
    or more.
    """
    return Pipeline(await read_once(engine, outbox_backlog))


@get(
    "/operations/totals",
    operation_id="count_totals",
    summary="Count all rows of the outbox and the claims.",
    tags=["operations"],
)
async def show_totals(engine: NamedDependency[AsyncEngine]) -> Totals:
    """Exact, and reads whole tables: do not call it in a loop on a large system. `topics` and `held` count events by topic."""
    async with engine.connect() as connection:
        recorded, topics = await outbox.counts(connection), await outbox.count_topics(connection)
        held = await outbox.count_topics(connection, held=True)
    async with driver_connection(engine) as driver:
        return Totals(recorded, topics, held, await claims.counts(driver))
