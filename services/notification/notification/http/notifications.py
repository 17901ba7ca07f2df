"""The REST API: who was told what, and a person's decisions about messages in doubt."""

from enum import StrEnum
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter

from messaging.unit_of_work import UnitsOfWork
from notification.application import queries
from notification.application.queries import LedgerCounts, NotificationView
from notification.delivery import ledger
from notification.domain.notification import State
from servicekit.problems import Problem
from servicekit.web import Items


class NotificationController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}/notifications"
    tags = ("notifications",)

    @get(summary="Who is told what about a labour, and how far it got")
    async def list_notifications(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]
    ) -> Items[NotificationView]:
        async with units_of_work() as uow:
            return Items(await queries.of_labour(uow.session, labour_id))


class Decision(StrEnum):
    SENT = "sent"  # somebody knows that the person has it
    SEND_AGAIN = "send-again"
    GIVE_UP = "give-up"


class Resolve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: Decision


class LedgerOperations(Controller):
    path = "/operations/notifications"
    tags = ("operations",)

    @get(summary="Messages in one state, oldest first; or, whatever their state, all about some events")
    async def list_messages(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        event_id: FromQuery[list[UUID] | None] = None,
        wanted: Annotated[State, QueryParameter(name="state")] = State.IN_DOUBT,
        limit: Annotated[int, QueryParameter(ge=1, le=1000)] = 100,
    ) -> Items[NotificationView]:
        async with units_of_work() as uow:
            if event_id:
                return Items(await queries.about_events(uow.session, event_id))
            return Items(await queries.in_state(uow.session, wanted, limit))

    @get("/counts", summary="How many messages are in which state")
    async def count_messages(self, units_of_work: NamedDependency[UnitsOfWork]) -> LedgerCounts:
        async with units_of_work() as uow:
            return await queries.counts(uow.session)

    @post("/{notification_id:uuid}/resolve", status_code=200, summary="Decide about a message in doubt")
    async def resolve(
        self, units_of_work: NamedDependency[UnitsOfWork], notification_id: FromPath[UUID], data: JSONBody[Resolve]
    ) -> NotificationView:
        async with units_of_work() as uow:
            match data.decision:
                case Decision.SENT:
                    decided = await ledger.settle_sent(uow, notification_id, sid=None, start=(State.IN_DOUBT,))
                case Decision.SEND_AGAIN:
                    decided = await ledger.send_again(uow, notification_id, attempt=None)
                case Decision.GIVE_UP:
                    decided = await ledger.settle_failed(
                        uow, notification_id, attempt=None, reason="given up by a person", start=(State.IN_DOUBT,)
                    )
            view = await queries.one(uow.session, notification_id)
        if view is None:
            raise Problem(404, "no-such-notification", f"There is no notification {notification_id}.")
        if not decided:
            raise Problem(409, "not-in-doubt", f"Notification {notification_id} is {view.state}, not in doubt.")
        return view
