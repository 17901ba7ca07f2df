"""Routes for operators: inspect and change the outbox, replay events, look up claims, run the retention.

All of them need the operations token. Long work is done in batches: each call handles one and returns where the next begins.
"""

import hmac
from datetime import datetime
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, get, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler, Guard
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging import claims, clock_offset, outbox, outbox_admin
from messaging.claims import ClaimCounts, ClaimRow
from messaging.database import driver_connection
from messaging.errors import ClockWrong
from messaging.outbox import OutboxCounts, OutboxRow
from messaging.outbox_admin import Batch, ParkedGroup, Replays
from messaging.retention import Retention, RetentionReport
from servicekit.problems import Problem
from servicekit.text import LINE, NAME
from servicekit.web import Items

SLICE = 10  # batches that one call for retention deletes

Limit = Annotated[int, QueryParameter(ge=1, le=1000)]
BatchSize = Annotated[int, msgspec.Meta(ge=1, le=1000)]
Position = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
Moment = Annotated[datetime, msgspec.Meta(tz=True)]
Word = Annotated[str, msgspec.Meta(max_length=500, pattern=LINE)]


class Parked(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects parked rows: of a type, with a text in their reason, or all; after a position."""

    type: Word | None = None
    reason: Word | None = None
    after: Position = 0
    limit: BatchSize = 100


class Replay(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Selects published events. With `dry_run` they are only listed."""

    since: Moment | None = None
    until: Moment | None = None
    ordering_key: Word | None = None
    type: Word | None = None
    dry_run: bool = False
    after: Position = 0
    limit: BatchSize = 500


class GivenUp(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    consumer: Annotated[str, msgspec.Meta(pattern=NAME)]
    event_ids: Annotated[list[UUID], msgspec.Meta(max_length=1000)]


def operator_guard(token: str) -> Guard:
    expected = f"Bearer {token}".encode()

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not hmac.compare_digest(connection.headers.get("authorization", "").encode(), expected):
            raise NotAuthorizedException("Operations routes need `Authorization: Bearer <OPERATIONS_TOKEN>`.")

    return guard


class OutboxOperations(Controller):
    path = "/operations/outbox"
    tags = ("operations",)

    @get(summary="List outbox rows, oldest first, without their payloads.")
    async def list_rows(
        self,
        engine: NamedDependency[AsyncEngine],
        event_id: FromQuery[list[UUID] | None] = None,
        ordering_key: FromQuery[str | None] = None,
        parked: FromQuery[bool] = False,
        newest: FromQuery[bool] = False,
        limit: Limit = 100,
    ) -> Items[OutboxRow]:
        async with engine.begin() as connection:
            return Items(
                await outbox.rows(
                    connection,
                    event_ids=event_id or (),
                    ordering_key=ordering_key,
                    parked=parked,
                    newest=newest,
                    limit=limit,
                )
            )

    @post("/{event_id:uuid}/retry", status_code=200, summary="Retry a pending row at once.")
    async def retry(self, engine: NamedDependency[AsyncEngine], event_id: FromPath[UUID]) -> OutboxRow:
        async with engine.begin() as connection:
            return _found(await outbox_admin.retry(connection, event_id), event_id)

    @post("/{event_id:uuid}/discard", status_code=200, summary="Discard a pending row for good.")
    async def discard(self, engine: NamedDependency[AsyncEngine], event_id: FromPath[UUID]) -> OutboxRow:
        async with engine.begin() as connection:
            return _found(await outbox_admin.discard(connection, event_id), event_id)

    @get("/parked", summary="List parked rows by type and reason, the largest group first.")
    async def list_groups(self, engine: NamedDependency[AsyncEngine]) -> Items[ParkedGroup]:
        async with engine.begin() as connection:
            return Items(await outbox_admin.parked_groups(connection))

    @post("/parked/retry", status_code=200, summary="Retry a group of parked rows, one batch per call.")
    async def retry_parked(self, engine: NamedDependency[AsyncEngine], data: JSONBody[Parked]) -> Batch:
        return await _change_parked(engine, data, discard=False)

    @post("/parked/discard", status_code=200, summary="Discard a group of parked rows for good, one batch per call.")
    async def discard_parked(self, engine: NamedDependency[AsyncEngine], data: JSONBody[Parked]) -> Batch:
        return await _change_parked(engine, data, discard=True)

    @post("/replay", status_code=200, summary="Publish events again, one batch per call.")
    async def replay(
        self,
        engine: NamedDependency[AsyncEngine],
        retention: NamedDependency[Retention],
        data: JSONBody[Replay],
    ) -> Batch:
        """Refused if one of the events is older than the replay horizon: its claim may be deleted, and then it would have its
        effect a second time.
        """
        if not (data.since or data.until or data.ordering_key or data.type):
            raise Problem(400, "replay-of-everything", "Select the events: pass since, until, ordering_key or type.")
        wanted = outbox_admin.published(
            since=data.since, until=data.until, ordering_key=data.ordering_key, type=data.type
        )
        async with engine.begin() as connection:
            oldest = await clock_offset.database_time(connection) - retention.replay_horizon
            if await outbox_admin.any_before(connection, wanted, oldest):
                raise Problem(
                    409,
                    "beyond-the-replay-horizon",
                    f"Some of these events are older than the replay horizon of {retention.replay_horizon.days} days. "
                    f"Their claims may be deleted, so a replay could repeat their effect. Choose a later `since`.",
                    oldest=oldest.isoformat(timespec="seconds"),
                )
            return await outbox_admin.replay(
                connection, wanted, dry_run=data.dry_run, after=data.after, limit=data.limit
            )

    @get("/replay", summary="Count the replayed events that are not published again yet.")
    async def show_replays(self, engine: NamedDependency[AsyncEngine]) -> Replays:
        async with engine.begin() as connection:
            return await outbox_admin.replays(connection)


class ClaimOperations(Controller):
    path = "/operations/claims"
    tags = ("operations",)

    @get(summary="List the claims of events: by which consumer, and when.")
    async def list_claims(
        self, engine: NamedDependency[AsyncEngine], event_id: FromQuery[list[UUID]]
    ) -> Items[ClaimRow]:
        async with driver_connection(engine) as connection:
            return Items(await claims.rows(connection, event_id))

    @post("/discard", status_code=200, summary="Discard events for a consumer. Returns those that were not completed.")
    async def discard_claims(self, engine: NamedDependency[AsyncEngine], data: JSONBody[GivenUp]) -> Items[UUID]:
        async with driver_connection(engine) as connection:
            return Items(await claims.discard(connection, data.consumer, data.event_ids))


@post(
    "/operations/retention",
    status_code=200,
    summary="Delete a slice of old claims and outbox rows.",
    tags=["operations"],
)
async def forget(retention: NamedDependency[Retention]) -> RetentionReport:
    try:
        return await retention.run_once(batches=SLICE)
    except ClockWrong as error:
        raise Problem(409, "clock-wrong", f"Nothing was deleted: {error}.") from None


class Pipeline(msgspec.Struct, frozen=True):
    """`topics` counts the recorded events by topic, `held` those of them that are parked or discarded. The topology knows which
    consumers take which topic.
    """

    outbox: OutboxCounts
    topics: dict[str, int]
    held: dict[str, int]
    claims: ClaimCounts


@get("/operations/pipeline", summary="Count the rows of the outbox and the claims.", tags=["operations"])
async def show_pipeline(engine: NamedDependency[AsyncEngine]) -> Pipeline:
    async with engine.connect() as connection:
        recorded, topics = await outbox.counts(connection), await outbox.count_topics(connection)
        held = await outbox.count_topics(connection, held=True)
    async with driver_connection(engine) as driver:
        return Pipeline(recorded, topics, held, await claims.counts(driver))


async def _change_parked(engine: AsyncEngine, data: Parked, *, discard: bool) -> Batch:
    async with engine.begin() as connection:
        return await outbox_admin.change_parked(
            connection, discard=discard, type=data.type, reason=data.reason, after=data.after, limit=data.limit
        )


def _found(row: OutboxRow | None, event_id: UUID) -> OutboxRow:
    if row is None:
        raise Problem(
            404, "no-pending-event", f"No event {event_id} is waiting in this outbox.", event_id=str(event_id)
        )
    return row


OPERATIONS: tuple[ControllerRouterHandler, ...] = (OutboxOperations, ClaimOperations, forget, show_pipeline)
