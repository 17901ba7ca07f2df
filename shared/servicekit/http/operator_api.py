"""Routes for operators: inspect and change the outbox, replay events, look up claims, run the retention.

They are on the operators' listener, which checks tokens and scopes (`operator_guard`). Long work is done in batches:
each call handles one and returns where the next begins.
"""

import asyncio
from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from litestar.types import ControllerRouterHandler
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging import claims, clock_offset, metrics, outbox, outbox_admin
from messaging.claims import ClaimRow
from messaging.database import driver_connection
from messaging.errors import ClockWrong
from messaging.outbox import OutboxRow
from messaging.outbox_admin import Batch, ParkedGroup, Replays
from messaging.retention import Retention, RetentionReport
from servicekit import metrics_export
from servicekit.http.pipeline_api import show_pipeline, show_totals
from servicekit.http.problems import Problem
from servicekit.http.web import Items
from servicekit.text import LINE, NAME

SLICE = 10  # batches that one call for retention deletes

Limit = Annotated[int, QueryParameter(ge=1, le=1000, description="The maximum number of rows in the answer.")]
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


class OutboxOperations(Controller):
    path = "/operations/outbox"
    tags = ("operations",)

    @get(operation_id="list_outbox_rows", summary="List outbox rows, oldest first, without their payloads.")
    async def list_rows(
        self,
        engine: NamedDependency[AsyncEngine],
        event_id: FromQuery[list[UUID] | None] = None,
        ordering_key: FromQuery[str | None] = None,
        parked: FromQuery[bool] = False,
        newest: FromQuery[bool] = False,
        limit: Limit = 100,
    ) -> Items[OutboxRow]:
        """Lists the rows of some events, of one ordering key (a labour), or all. `parked` lists parked rows only, `newest` the
        last rows first.
        """
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

    @post(
        "/{event_id:uuid}/retry",
        operation_id="retry_outbox_row",
        status_code=200,
        summary="Retry a pending row at once.",
        refuses={404: "no-pending-event"},
    )
    async def retry(self, engine: NamedDependency[AsyncEngine], event_id: FromPath[UUID]) -> OutboxRow:
        """A parked row is pending again, and its attempts are counted from 0. The later rows of its labour follow it."""
        async with engine.begin() as connection:
            return _found(await outbox_admin.retry(connection, event_id), event_id)

    @post(
        "/{event_id:uuid}/discard",
        operation_id="discard_outbox_row",
        status_code=200,
        summary="Discard a pending row for good.",
        refuses={404: "no-pending-event"},
    )
    async def discard(self, engine: NamedDependency[AsyncEngine], event_id: FromPath[UUID]) -> OutboxRow:
        """The event is never published, so it has no effect. The later rows of its labour are no longer held up."""
        async with engine.begin() as connection:
            return _found(await outbox_admin.discard(connection, event_id), event_id)

    @get(
        "/parked",
        operation_id="list_parked_groups",
        summary="List parked rows by type and reason, the largest group first.",
    )
    async def list_groups(self, engine: NamedDependency[AsyncEngine]) -> Items[ParkedGroup]:
        """Each group has the number of rows, the number of labours that they hold up, and the oldest row."""
        async with engine.begin() as connection:
            return Items(await outbox_admin.parked_groups(connection))

    @post(
        "/parked/retry",
        operation_id="retry_parked_rows",
        status_code=200,
        summary="Retry a group of parked rows, one batch per call.",
    )
    async def retry_parked(self, engine: NamedDependency[AsyncEngine], data: JSONBody[Parked]) -> Batch:
        """The rows are pending again, and their attempts are counted from 0. Rows that fail again are parked again."""
        return await _change_parked(engine, data, discard=False)

    @post(
        "/parked/discard",
        operation_id="discard_parked_rows",
        status_code=200,
        summary="Discard a group of parked rows for good, one batch per call.",
    )
    async def discard_parked(self, engine: NamedDependency[AsyncEngine], data: JSONBody[Parked]) -> Batch:
        """The events are never published, so they have no effect. The later rows of their labours are no longer held up."""
        return await _change_parked(engine, data, discard=True)

    @post(
        "/replay",
        operation_id="replay_events",
        status_code=200,
        summary="Publish events again, one batch per call.",
        refuses={400: "replay-of-everything", 409: "beyond-the-replay-horizon"},
    )
    async def replay(
        self,
        engine: NamedDependency[AsyncEngine],
        retention: NamedDependency[Retention],
        data: JSONBody[Replay],
    ) -> Batch:
        """Consumers that have completed an event ignore it. Refused if one of the events is older than the replay horizon: its
        claim may be deleted, and then it would have its effect a second time. With `dry_run` the events are only listed.
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

    @get(
        "/replay",
        operation_id="count_replays",
        summary="Count the replayed events that are not published again yet.",
    )
    async def show_replays(self, engine: NamedDependency[AsyncEngine]) -> Replays:
        """Both numbers are 0 when a replay is finished. Parked rows need an operator."""
        async with engine.begin() as connection:
            return await outbox_admin.replays(connection)


class ClaimOperations(Controller):
    path = "/operations/claims"
    tags = ("operations",)

    @get(operation_id="list_claims", summary="List the claims of events: by which consumer, and when.")
    async def list_claims(
        self, engine: NamedDependency[AsyncEngine], event_id: FromQuery[list[UUID]]
    ) -> Items[ClaimRow]:
        """An event without a row was not claimed by a consumer of this service, or its claim is older than the retention."""
        async with driver_connection(engine) as connection:
            return Items(await claims.rows(connection, event_id))

    @post(
        "/discard",
        operation_id="discard_claims",
        status_code=200,
        summary="Discard events for a consumer.",
    )
    async def discard_claims(self, engine: NamedDependency[AsyncEngine], data: JSONBody[GivenUp]) -> Items[UUID]:
        """Returns those that were not completed. From now on a delivery of them is acknowledged and has no effect."""
        async with driver_connection(engine) as connection:
            return Items(await claims.discard(connection, data.consumer, data.event_ids))


@post(
    "/operations/retention",
    operation_id="run_retention",
    status_code=200,
    summary="Delete a slice of old claims and outbox rows.",
    tags=["operations"],
    refuses={409: "retention-too-short clock-wrong"},
)
async def forget(retention: NamedDependency[Retention]) -> RetentionReport:
    """Call it again while `more` is true. Deletes nothing that a replay may still need."""
    try:
        return await retention.run_once(batches=SLICE)
    except ClockWrong as error:
        raise Problem(409, "clock-wrong", f"Nothing was deleted: {error}.") from None


@get(
    "/metrics",
    operation_id="get_metrics",
    summary="Get the metrics of this process in Prometheus' text format.",
    tags=["operations"],
    media_type="text/plain",
    refuses={404: "no-metrics"},
    example="# HELP fern_event_loop_lag_seconds How late the event loop runs a timer.",
)
async def show_metrics() -> Response[bytes]:
    """Prometheus sends a bearer token with the scope `read`. Asks nothing of the database."""
    if not metrics.enabled:
        raise Problem(404, "no-metrics", "This process records no metrics: set MONITOR_PORT.")
    return Response(await asyncio.to_thread(metrics_export.text), media_type=metrics_export.CONTENT_TYPE)


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


OPERATIONS: tuple[ControllerRouterHandler, ...] = (
    OutboxOperations,
    ClaimOperations,
    forget,
    show_pipeline,
    show_totals,
    show_metrics,
)
