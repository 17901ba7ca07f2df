"""The REST API for a labour itself: planning, its course, its updates, and who was told."""

from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from labour.application import commands, queries, told
from labour.application.command_runner import Once, etag
from labour.application.told import ToldRow, ToldView
from labour.application.views import LabourPage, LabourView, SubscribedLabourView, UpdateView, show
from labour.domain.labour import UpdateKind
from labour.http.auth import Caller
from messaging.unit_of_work import UnitsOfWork
from servicekit.web import Items

# At least one character that can be seen, and none that cannot.
VISIBLE = r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$"
PersonName = Annotated[str, Meta(min_length=1, max_length=100, pattern=VISIBLE, examples=["Ada"])]


class PlanLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mother_name: PersonName
    first_labour: bool = True


class CompleteLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    notes: Annotated[str, Meta(max_length=1000, description="The mother's own; nobody else sees them")] | None = None


class PostUpdate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    kind: UpdateKind
    text: Annotated[str, Meta(min_length=1, max_length=280, pattern=VISIBLE, examples=["Nearly there!"])]


class LabourController(Controller):
    """Whatever changes something takes an `Idempotency-Key`, and then has its effect once however often it is sent; and
    `If-Match` with the ETag of the labour, and then has it only if nobody else changed the labour meanwhile.
    """

    path = "/api/v1/labours"
    tags = ("labours",)

    @post(summary="Plan a labour; it is the caller's own. Anybody may")
    async def plan(self, once: NamedDependency[Once], data: JSONBody[PlanLabour]) -> Response[LabourView]:
        return await once(
            lambda labours: commands.plan_labour(
                labours, mother_name=data.mother_name.strip(), first_labour=data.first_labour
            ),
            LabourView.of,
            status=201,
            location=lambda labour: f"/api/v1/labours/{labour.id}",
        )

    @get(summary="The caller's own labours, newest first")
    async def list_labours(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        caller: NamedDependency[Caller],
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        after: FromQuery[UUID | None] = None,
    ) -> LabourPage:
        async with units_of_work() as uow:
            return await queries.list_labours(uow.session, caller.id, limit=limit, after=after)

    @get("/{labour_id:uuid}", summary="One labour: all of it for the mother, how it goes for those who are told")
    async def get_labour(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Response[LabourView | SubscribedLabourView]:
        async with units_of_work() as uow:
            labour = await queries.get_labour(uow.session, labour_id, caller.id)
        return Response(labour, headers={"ETag": etag(labour.version)})

    @put("/{labour_id:uuid}/begin", summary="It has begun: everyone approved is told. The mother may")
    async def begin(self, once: NamedDependency[Once], labour_id: FromPath[UUID]) -> Response[LabourView]:
        return await once(lambda labours: commands.begin_labour(labours, labour_id), LabourView.of)

    @put("/{labour_id:uuid}/pushing", summary="The mother is pushing. She may say so")
    async def push(self, once: NamedDependency[Once], labour_id: FromPath[UUID]) -> Response[LabourView]:
        return await once(lambda labours: commands.push(labours, labour_id), LabourView.of)

    @put("/{labour_id:uuid}/complete", summary="The baby is here: everyone approved is told. The mother may")
    async def complete(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[CompleteLabour | None] = None
    ) -> Response[LabourView]:
        notes = data.notes if data else None
        return await once(lambda labours: commands.complete_labour(labours, labour_id, notes), LabourView.of)

    @post("/{labour_id:uuid}/updates", summary="Say something: to everyone, to those who look, or to oneself")
    async def post_update(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[PostUpdate]
    ) -> Response[UpdateView]:
        return await once(
            lambda labours: commands.post_update(labours, labour_id, kind=data.kind, text=data.text.strip()),
            lambda update: show(UpdateView, update),
            status=201,
        )

    @get("/{labour_id:uuid}/updates", summary="What was said, newest first; private notes for the mother alone")
    async def list_updates(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Items[UpdateView]:
        async with units_of_work() as uow:
            return Items(await queries.list_updates(uow.session, labour_id, caller.id))

    @delete("/{labour_id:uuid}/updates/{update_id:uuid}", status_code=204, summary="Unsay it, if nobody was told")
    async def take_update_back(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], update_id: FromPath[UUID]
    ) -> Response[None]:
        return await once(
            lambda labours: commands.take_update_back(labours, labour_id, update_id), lambda _: None, status=204
        )

    @get("/{labour_id:uuid}/told", summary="Who was told what, for the mother")
    async def list_told(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Items[ToldView]:
        async with units_of_work() as uow:
            return Items(await told.list_told(uow.session, labour_id, caller.id))


@get("/operations/told", summary="What the service knows of the messages about a labour", tags=["operations"])
async def show_told(units_of_work: NamedDependency[UnitsOfWork], labour_id: FromQuery[UUID]) -> Items[ToldRow]:
    async with units_of_work() as uow:
        return Items(await told.rows(uow.session, labour_id))
