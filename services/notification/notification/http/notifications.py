"""The REST API of operators: the messages about a labour, and the messages in doubt."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging.unit_of_work import UnitsOfWork
from notification.application import commands, queries
from notification.application.queries import LedgerCounts, NotificationView
from notification.domain.notification import NotificationState, Resolution
from servicekit.http.web import Items


class NotificationController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}/notifications"
    tags = ("notifications",)

    @get(operation_id="list_notifications", summary="List the messages about a labour and their states.")
    async def list_notifications(
        self, engine: NamedDependency[AsyncEngine], labour_id: FromPath[UUID]
    ) -> Items[NotificationView]:
        """In the order in which they were created, without numbers and texts. The list is empty for an unknown labour."""
        async with engine.connect() as connection:
            return Items(await queries.of_labour(connection, labour_id))


class Resolve(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    decision: Resolution


class LedgerOperations(Controller):
    path = "/operations/notifications"
    tags = ("operations",)

    @get(operation_id="list_messages", summary="List the messages in one state, oldest first, or about some events.")
    async def list_messages(
        self,
        engine: NamedDependency[AsyncEngine],
        event_id: FromQuery[list[UUID] | None] = None,
        wanted: Annotated[NotificationState, QueryParameter(name="state")] = NotificationState.IN_DOUBT,
        limit: Annotated[int, QueryParameter(ge=1, le=1000, description="The maximum number of messages.")] = 100,
    ) -> Items[NotificationView]:
        """With `event_id`, all messages about these events, in any state; otherwise those in one state."""
        async with engine.connect() as connection:
            if event_id:
                return Items(await queries.about_events(connection, event_id))
            return Items(await queries.in_state(connection, wanted, limit))

    @get("/counts", operation_id="count_messages", summary="Count the messages in each state.")
    async def count_messages(self, engine: NamedDependency[AsyncEngine]) -> LedgerCounts:
        """`oldest_unsettled_seconds` is the age of the oldest message that is neither sent nor failed."""
        async with engine.connect() as connection:
            return await queries.counts(connection)

    @post(
        "/{notification_id:uuid}/resolve",
        operation_id="resolve_message",
        status_code=200,
        summary="Resolve a message in doubt.",
        refuses={404: "no-such-notification", 409: "not-in-doubt superseded"},
    )
    async def resolve(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        engine: NamedDependency[AsyncEngine],
        notification_id: FromPath[UUID],
        data: JSONBody[Resolve],
    ) -> NotificationView:
        """Decide `sent` if the person has the message, `send-again` if the provider never got it, `give-up` if neither can be
        known. A wrong `send-again` sends the SMS twice.
        """
        async with units_of_work() as uow:
            await commands.resolve(uow, notification_id, data.decision)
        async with engine.connect() as connection:
            return await queries.one(connection, notification_id)
