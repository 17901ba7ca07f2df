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
from labour.application.told import ToldRow, ToldView
from labour.application.views import LabourPage, LabourView, SubscribedLabourView, UpdateView, show
from labour.domain.update import UpdateKind
from labour.http.responses import Id, Read, Run, etag, no_content
from servicekit.text import LINES, VISIBLE_LINE
from servicekit.web import Items

PersonName = Annotated[str, Meta(min_length=1, max_length=100, pattern=VISIBLE_LINE, examples=["Ada"])]


class PlanLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mother_name: PersonName
    first_labour: bool = True


class CompleteLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    notes: Annotated[str, Meta(max_length=1000, pattern=LINES, description="Shown to the mother only")] | None = None


class PostUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An announcement is sent to all subscribers; a status is shown to them; a private note is shown to the mother only."""

    kind: UpdateKind
    text: Annotated[str, Meta(min_length=1, max_length=280, pattern=VISIBLE_LINE, examples=["Nearly there!"])]


class LabourController(Controller):
    """Every request that changes something takes two headers. With `Idempotency-Key` it has its effect once, however often it
    is sent. With `If-Match` and the ETag of the labour it has its effect only if the labour has not changed since.
    """

    path = "/api/v1/labours"
    tags = ("labours",)

    @post(summary="Plan a labour. Any caller may, and becomes its mother.")
    async def plan(self, run: Run, data: JSONBody[PlanLabour]) -> Response[LabourView]:
        name = data.mother_name.strip()
        return await run(commands.plan_labour, LabourView.of, mother_name=name, first_labour=data.first_labour)

    @get(summary="List the caller's own labours, newest first.")
    async def list_labours(
        self, read: Read, limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20, after: FromQuery[UUID | None] = None
    ) -> LabourPage:
        return await read(queries.list_labours, limit=limit, after=after)

    @get("/{labour_id:uuid}", summary="Get a labour: everything for the mother, its course for approved subscribers.")
    async def get_labour(self, read: Read, labour_id: Id) -> Response[LabourView | SubscribedLabourView]:
        labour = await read(queries.get_labour, labour_id)
        return Response(labour, headers={"ETag": etag(labour.version)})

    @put("/{labour_id:uuid}/begin", summary="Begin a labour and notify its subscribers. Only the mother may.")
    async def begin(self, run: Run, labour_id: Id) -> Response[LabourView]:
        return await run(commands.begin_labour, LabourView.of, labour_id)

    @put("/{labour_id:uuid}/pushing", summary="Record the pushing phase. Only the mother may.")
    async def push(self, run: Run, labour_id: Id) -> Response[LabourView]:
        return await run(commands.push, LabourView.of, labour_id)

    @put("/{labour_id:uuid}/complete", summary="Complete a labour and notify its subscribers. Only the mother may.")
    async def complete(
        self, run: Run, labour_id: Id, data: JSONBody[CompleteLabour | None] = None
    ) -> Response[LabourView]:
        return await run(commands.complete_labour, LabourView.of, labour_id, data.notes if data else None)

    @post("/{labour_id:uuid}/updates", summary="Post an announcement, a status or a note. Only the mother may.")
    async def post_update(self, run: Run, labour_id: Id, data: JSONBody[PostUpdate]) -> Response[UpdateView]:
        return await run(commands.post_update, show(UpdateView), labour_id, kind=data.kind, text=data.text.strip())

    @get("/{labour_id:uuid}/updates", summary="List updates, newest first. Private notes are for the mother only.")
    async def list_updates(self, read: Read, labour_id: Id) -> Items[UpdateView]:
        return Items(await read(queries.list_updates, labour_id))

    @delete(
        "/{labour_id:uuid}/updates/{update_id:uuid}",
        summary="Delete an update. Announcements cannot be deleted: they were already sent. Only the mother may.",
    )
    async def delete_update(self, run: Run, labour_id: Id, update_id: Id) -> Response[None]:
        return await run(commands.delete_update, no_content, labour_id, update_id)

    @get("/{labour_id:uuid}/told", summary="List the messages about a labour and their status. Only the mother may.")
    async def list_told(self, read: Read, labour_id: Id) -> Items[ToldView]:
        return Items(await read(told.list_told, labour_id))


@get("/operations/told", summary="List the messages about a labour and their status, by id.", tags=["operations"])
async def show_told(engine: NamedDependency[AsyncEngine], labour_id: FromQuery[UUID]) -> Items[ToldRow]:
    async with engine.connect() as connection:
        return Items(await told.list_rows(connection, labour_id))
