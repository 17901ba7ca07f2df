"""REST routes for a labour: its course, its updates, and the delivery status of its messages."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromQuery, JSONBody, QueryParameter
from msgspec import Meta
from sqlalchemy.ext.asyncio import AsyncEngine

from labour.application import commands, queries, told
from labour.application.told import TOLD_LIMIT, ToldRow, ToldView
from labour.application.views import LabourPage, LabourView, SubscribedLabourView, UpdateView, show
from labour.domain.update import UPDATE_LIMIT, UpdateKind
from labour.http.responses import PAGE_SIZE, After, Id, Read, Run, etag, no_content, page
from servicekit.http.web import Items, Page
from servicekit.text import LINES, VISIBLE_LINE

PersonName = Annotated[str, Meta(min_length=1, max_length=100, pattern=VISIBLE_LINE, examples=["Ada"])]


class PlanLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mother_name: PersonName
    first_labour: bool = True


class CompleteLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    notes: Annotated[str, Meta(max_length=1000, pattern=LINES, description="Shown to the mother only")] | None = None
    baby_name: Annotated[PersonName, Meta(description="Told to subscribers by SMS only")] | None = None


class PostUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An announcement is sent to all subscribers; a status is shown to them; a private note is shown to the mother only."""

    kind: UpdateKind
    text: Annotated[str, Meta(min_length=1, max_length=280, pattern=VISIBLE_LINE, examples=["Nearly there!"])]


class LabourController(Controller):
    path = "/api/v1/labours"
    tags = ("labours",)

    @post(
        operation_id="plan_labour",
        summary="Plan a labour.",
        gives=("ETag", "Location"),
        refuses={400: "text-not-allowed", 409: "unfinished-labour"},
    )
    async def plan(self, run: Run, data: JSONBody[PlanLabour]) -> Response[LabourView]:
        """Any caller may, and becomes its mother. An account has one unfinished labour at a time. Notifies no person.

        It counts towards the labours that the account may plan in a day.
        """
        name = data.mother_name.strip()
        return await run(commands.plan_labour, LabourView.of, mother_name=name, first_labour=data.first_labour)

    @get(operation_id="list_labours", summary="List the caller's own labours, newest first.")
    async def list_labours(
        self,
        read: Read,
        limit: Annotated[int, QueryParameter(ge=1, le=100, description=PAGE_SIZE)] = 20,
        after: After = None,
    ) -> LabourPage:
        """Any caller may, and gets the labours of which they are the mother, page by page."""
        return await read(queries.list_labours, limit=limit, after=after)

    @get("/{labour_id:uuid}", operation_id="get_labour", summary="Get a labour.", gives=("ETag",))
    async def get_labour(self, read: Read, labour_id: Id) -> Response[LabourView | SubscribedLabourView]:
        """The mother and approved subscribers may. The mother gets everything, with an `ETag`; a subscriber gets the course of
        the labour, without one. `view` says which it is.
        """
        labour = await read(queries.get_labour, labour_id)
        headers = {"ETag": etag(labour.version)} if isinstance(labour, LabourView) else {}
        return Response(labour, headers=headers)

    @put(
        "/{labour_id:uuid}/begin",
        operation_id="begin_labour",
        summary="Begin a labour and notify its subscribers.",
        gives=("ETag",),
        refuses={409: "labour-already-begun labour-already-completed"},
        exempt=("daily-limit",),
    )
    async def begin(self, run: Run, labour_id: Id) -> Response[LabourView]:
        """Only the mother may. Sends one SMS to each approved subscriber, once. The first contraction begins a labour as well."""
        return await run(commands.begin_labour, LabourView.of, labour_id)

    @put(
        "/{labour_id:uuid}/pushing",
        operation_id="record_pushing",
        summary="Record the pushing phase.",
        gives=("ETag",),
        refuses={409: "labour-not-begun labour-already-completed"},
    )
    async def push(self, run: Run, labour_id: Id) -> Response[LabourView]:
        """Only the mother may. Shown to subscribers; sends no SMS."""
        return await run(commands.push, LabourView.of, labour_id)

    @put(
        "/{labour_id:uuid}/complete",
        operation_id="complete_labour",
        summary="Complete a labour and notify its subscribers.",
        gives=("ETag",),
        refuses={400: "text-not-allowed", 409: "labour-already-completed contraction-running"},
        exempt=("daily-limit",),
    )
    async def complete(
        self, run: Run, labour_id: Id, data: JSONBody[CompleteLabour | None] = None
    ) -> Response[LabourView]:
        """Only the mother may, in any phase. Sends one SMS to each approved subscriber, once, before all other messages that
        wait. `told` lists the status of each message. The body is optional. The message names the baby if `baby_name` is given.
        """
        if data is None:
            return await run(commands.complete_labour, LabourView.of, labour_id)
        baby_name = data.baby_name.strip() if data.baby_name else None
        return await run(commands.complete_labour, LabourView.of, labour_id, data.notes, baby_name)

    @post(
        "/{labour_id:uuid}/updates",
        operation_id="post_update",
        summary="Post an announcement, a status or a private note.",
        refuses={
            400: "text-not-allowed",
            409: "labour-already-completed too-many-updates too-many-announcements",
            429: "too-soon",
        },
    )
    async def post_update(self, run: Run, labour_id: Id, data: JSONBody[PostUpdate]) -> Response[UpdateView]:
        """Only the mother may. An announcement is sent by SMS to each approved subscriber and uses segments of the day; the
        next one is possible after a wait of 10 s, which doubles each time up to 10 minutes. A status is shown to subscribers. A
        private note is shown to the mother.
        """
        return await run(commands.post_update, show(UpdateView), labour_id, kind=data.kind, text=data.text.strip())

    @get("/{labour_id:uuid}/updates", operation_id="list_updates", summary="List updates, newest first.")
    async def list_updates(
        self,
        read: Read,
        labour_id: Id,
        limit: Annotated[int, QueryParameter(ge=1, le=UPDATE_LIMIT, description=PAGE_SIZE)] = 100,
        after: After = None,
    ) -> Page[UpdateView, UUID]:
        """The mother and approved subscribers may, page by page. Private notes are for the mother only."""
        return await page(
            lambda number: read(queries.list_updates, labour_id, limit=number, after=after),
            limit,
            lambda last: last.id,
        )

    @delete(
        "/{labour_id:uuid}/updates/{update_id:uuid}",
        operation_id="delete_update",
        summary="Delete an update.",
        refuses={404: "no-such-update", 409: "announcement-sent"},
    )
    async def delete_update(self, run: Run, labour_id: Id, update_id: Id) -> Response[None]:
        """Only the mother may. Announcements cannot be deleted: they were already sent."""
        return await run(commands.delete_update, no_content, labour_id, update_id)

    @get(
        "/{labour_id:uuid}/told",
        operation_id="list_told",
        summary="List the messages about a labour and their status.",
        refuses={403: "not-yours"},
    )
    async def list_told(
        self,
        read: Read,
        labour_id: Id,
        limit: Annotated[int, QueryParameter(ge=1, le=TOLD_LIMIT, description=PAGE_SIZE)] = TOLD_LIMIT,
        after: After = None,
    ) -> Page[ToldView, UUID]:
        """Only the mother may, page by page. A message is listed once it was sent, has failed, or was superseded by a newer one.
        Messages are in the order of their creation.
        """
        return await page(
            lambda number: read(told.list_told, labour_id, limit=number, after=after),
            limit,
            lambda last: last.notification_id,
        )


@get(
    "/operations/told",
    operation_id="list_told_rows",
    summary="List the messages about a labour and their status, by id.",
    tags=["operations"],
)
async def show_told(engine: NamedDependency[AsyncEngine], labour_id: FromQuery[UUID]) -> Items[ToldRow]:
    """Without names. The list is empty for an unknown labour."""
    async with engine.connect() as connection:
        return Items(await told.list_rows(connection, labour_id))
