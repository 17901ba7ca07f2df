"""The REST API: bodies in, verbs called, views out; and the one table that says which error is which problem."""

import math
from collections.abc import Callable, Mapping
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, FromQuery, JSONBody, QueryParameter
from msgspec import Meta

from labour import commands, model, queries, told
from labour.commands import TooBusy
from labour.phone import NotAPhoneNumber
from labour.queries import AnnouncementView, LabourPage, LabourView, SubscriberView
from labour.store import NoSuchLabour
from labour.told import ToldView
from messaging.unit_of_work import UnitsOfWork
from messaging.web import Items, Problem

PersonName = Annotated[
    str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", examples=["Ada"])
]


class PlanLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mother_name: PersonName


class Subscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: PersonName
    phone: Annotated[str, Meta(min_length=1, max_length=40, description="With country code", examples=["+12025550123"])]


class Announce(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    text: Annotated[
        str,
        Meta(
            min_length=1, max_length=280, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", examples=["Nearly there!"]
        ),
    ]


class LabourController(Controller):
    path = "/api/v1/labours"
    tags = ("labours",)

    @post(summary="Plan a labour")
    async def plan(
        self, units_of_work: NamedDependency[UnitsOfWork], data: JSONBody[PlanLabour]
    ) -> Response[LabourView]:
        labour = await commands.plan_labour(units_of_work, mother_name=data.mother_name.strip())
        return Response(LabourView.of(labour), status_code=201, headers={"Location": f"/api/v1/labours/{labour.id}"})

    @get(summary="List labours, newest first")
    async def list_labours(
        self,
        units_of_work: NamedDependency[UnitsOfWork],
        limit: Annotated[int, QueryParameter(ge=1, le=100)] = 20,
        after: FromQuery[UUID | None] = None,
    ) -> LabourPage:
        async with units_of_work() as uow:
            return await queries.list_labours(uow.session, limit=limit, after=after)

    @get("/{labour_id:uuid}", summary="One labour and the people who are told about it")
    async def get_labour(self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]) -> LabourView:
        async with units_of_work() as uow:
            return await queries.get_labour(uow.session, labour_id)

    @put("/{labour_id:uuid}/begin", summary="It has begun: everyone subscribed is told")
    async def begin(self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]) -> LabourView:
        return LabourView.of(await commands.begin_labour(units_of_work, labour_id))

    @put("/{labour_id:uuid}/complete", summary="The baby is here: everyone subscribed is told")
    async def complete(self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]) -> LabourView:
        return LabourView.of(await commands.complete_labour(units_of_work, labour_id))

    @post("/{labour_id:uuid}/announcements", summary="Tell everyone something; it cannot be unsaid")
    async def announce(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID], data: JSONBody[Announce]
    ) -> AnnouncementView:
        return AnnouncementView.of(await commands.announce(units_of_work, labour_id, text=data.text.strip()))

    @get("/{labour_id:uuid}/announcements", summary="What everyone was told, newest first")
    async def list_announcements(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]
    ) -> Items[AnnouncementView]:
        async with units_of_work() as uow:
            return Items(await queries.list_announcements(uow.session, labour_id))

    @get("/{labour_id:uuid}/told", summary="Who was told what, as the Notification service reported it")
    async def list_told(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]
    ) -> Items[ToldView]:
        async with units_of_work() as uow:
            return Items(await told.list_told(uow.session, labour_id))

    @post("/{labour_id:uuid}/subscribers", summary="Somebody is to be told")
    async def subscribe(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID], data: JSONBody[Subscribe]
    ) -> SubscriberView:
        subscriber = await commands.subscribe(units_of_work, labour_id, name=data.name.strip(), phone=data.phone)
        return SubscriberView.of(subscriber)

    @delete("/{labour_id:uuid}/subscribers/{subscriber_id:uuid}", summary="Somebody is no longer to be told")
    async def unsubscribe(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> None:
        await commands.unsubscribe(units_of_work, labour_id, subscriber_id)


def _conflict(name: str) -> Callable[[model.LabourError], Problem]:
    return lambda error: Problem(409, name, str(error), labour_id=str(error.labour_id))


PROBLEMS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    NoSuchLabour: lambda error: Problem(404, "no-such-labour", str(error)),
    NotAPhoneNumber: lambda error: Problem(
        400, "not-a-phone-number", str(error), fields=[{"field": "phone", "problem": str(error)}]
    ),
    TooBusy: lambda _: Problem(
        409, "too-busy", "Too many people are changing this labour at once; try again.", {"Retry-After": "1"}
    ),
    model.LabourAlreadyBegun: _conflict("labour-already-begun"),
    model.LabourAlreadyCompleted: _conflict("labour-already-completed"),
    model.TooSoon: lambda error: Problem(
        429, "too-soon", str(error), {"Retry-After": str(math.ceil(error.wait.total_seconds()))}
    ),
    model.AlreadySubscribed: _conflict("already-subscribed"),
    model.RosterFull: _conflict("roster-full"),
    model.NotSubscribed: lambda error: Problem(404, "not-subscribed", str(error), labour_id=str(error.labour_id)),
}
