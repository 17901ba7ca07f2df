"""Routes for the people who run a service: see and move its outbox, look up claims, count. They need the operations token."""

import hmac
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, get, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.exceptions import NotAuthorizedException
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, FromQuery, QueryParameter
from litestar.types import ControllerRouterHandler, Guard

from messaging import claims, outbox
from messaging.claims import ClaimCounts, ClaimRow
from messaging.outbox import OutboxCounts, OutboxRow
from messaging.unit_of_work import UnitsOfWork
from messaging.web import Items, Problem

Limit = Annotated[int, QueryParameter(ge=1, le=1000)]


def operator_guard(token: str) -> Guard:
    expected = f"Bearer {token}".encode()

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not hmac.compare_digest(connection.headers.get("authorization", "").encode(), expected):
            raise NotAuthorizedException("Operations routes need `Authorization: Bearer <OPERATIONS_TOKEN>`.")

    return guard


class OutboxOperations(Controller):
    path = "/operations/outbox"
    tags = ("operations",)

    @get(summary="Outbox rows, oldest first, without their payloads")
    async def list_rows(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        event_id: FromQuery[list[UUID] | None] = None,
        ordering_key: FromQuery[str | None] = None,
        parked: FromQuery[bool] = False,
        newest: FromQuery[bool] = False,
        limit: Limit = 100,
    ) -> Items[OutboxRow]:
        async with units_of_work() as uow:
            return Items(
                await outbox.rows(
                    uow.session,
                    event_ids=event_id or (),
                    ordering_key=ordering_key,
                    parked=parked,
                    newest=newest,
                    limit=limit,
                )
            )

    @post("/{event_id:uuid}/retry", status_code=200, summary="Try a row again at once")
    async def retry(self, units_of_work: NamedDependency[UnitsOfWork], event_id: FromPath[UUID]) -> OutboxRow:
        async with units_of_work() as uow:
            return _found(await outbox.retry(uow.session, event_id), event_id)

    @post("/{event_id:uuid}/discard", status_code=200, summary="Give a row up for good")
    async def discard(self, units_of_work: NamedDependency[UnitsOfWork], event_id: FromPath[UUID]) -> OutboxRow:
        async with units_of_work() as uow:
            return _found(await outbox.discard(uow.session, event_id), event_id)


class ClaimOperations(Controller):
    path = "/operations/claims"
    tags = ("operations",)

    @get(summary="Which of these events were claimed, by which consumer, and when")
    async def list_claims(
        self, units_of_work: NamedDependency[UnitsOfWork], event_id: FromQuery[list[UUID]]
    ) -> Items[ClaimRow]:
        async with units_of_work() as uow:
            return Items(await claims.rows(uow.session, event_id))


class Pipeline(msgspec.Struct, frozen=True):
    """`topics` are the events that were recorded, by topic: who consumes which is known to the topology alone."""

    outbox: OutboxCounts
    topics: dict[str, int]
    claims: ClaimCounts


@get("/operations/pipeline", summary="How much is where: outbox and claims, counted", tags=["operations"])
async def show_pipeline(units_of_work: NamedDependency[UnitsOfWork]) -> Pipeline:
    async with units_of_work() as uow:
        session = uow.session
        return Pipeline(await outbox.counts(session), await outbox.count_topics(session), await claims.counts(session))


def _found(row: OutboxRow | None, event_id: UUID) -> OutboxRow:
    if row is None:
        raise Problem(
            404, "no-pending-event", f"No event {event_id} is waiting in this outbox.", event_id=str(event_id)
        )
    return row


OPERATIONS: tuple[ControllerRouterHandler, ...] = (OutboxOperations, ClaimOperations, show_pipeline)
