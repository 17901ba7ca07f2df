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

from labour import commands, errors, queries, told
from labour.once import Once, TooBusy, etag
from labour.phone import NotAPhoneNumber
from labour.queries import AnnouncementView, LabourPage, LabourView, SubscriberView
from labour.store import NoSuchLabour, VersionChanged
from labour.told import ToldView
from messaging.idempotency import KeyInFlight, KeyReused
from messaging.unit_of_work import UnitsOfWork
from messaging.web import Items, Problem

PersonName = Annotated[
    str, Meta(min_length=1, max_length=100, pattern=r"^[^\x00-\x1f\x7f]*\S[^\x00-\x1f\x7f]*$", examples=["Ada"])
]


class PlanLabour(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mother_name: PersonName
    first_labour: bool = True


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
    """Whatever changes something takes an `Idempotency-Key`, and then has its effect once however often it is sent; and
    `If-Match` with the ETag of the labour, and then has it only if nobody else changed the labour meanwhile.
    """

    path = "/api/v1/labours"
    tags = ("labours",)

    @post(summary="Plan a labour")
    async def plan(self, once: NamedDependency[Once], data: JSONBody[PlanLabour]) -> Response[LabourView]:
        return await once(
            lambda labours: commands.plan_labour(
                labours, mother_name=data.mother_name.strip(), first_labour=data.first_labour
            ),
            LabourView.of,
            status=201,
            location=lambda labour: f"/api/v1/labours/{labour.id}",
        )

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
    async def get_labour(
        self, units_of_work: NamedDependency[UnitsOfWork], labour_id: FromPath[UUID]
    ) -> Response[LabourView]:
        async with units_of_work() as uow:
            labour = await queries.get_labour(uow.session, labour_id)
        return Response(labour, headers={"ETag": etag(labour.version)})

    @put("/{labour_id:uuid}/begin", summary="It has begun: everyone subscribed is told")
    async def begin(self, once: NamedDependency[Once], labour_id: FromPath[UUID]) -> Response[LabourView]:
        return await once(lambda labours: commands.begin_labour(labours, labour_id), LabourView.of)

    @put("/{labour_id:uuid}/complete", summary="The baby is here: everyone subscribed is told")
    async def complete(self, once: NamedDependency[Once], labour_id: FromPath[UUID]) -> Response[LabourView]:
        return await once(lambda labours: commands.complete_labour(labours, labour_id), LabourView.of)

    @put("/{labour_id:uuid}/pushing", summary="The mother is pushing")
    async def push(self, once: NamedDependency[Once], labour_id: FromPath[UUID]) -> Response[LabourView]:
        return await once(lambda labours: commands.push(labours, labour_id), LabourView.of)

    @post("/{labour_id:uuid}/announcements", summary="Tell everyone something; it cannot be unsaid")
    async def announce(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[Announce]
    ) -> Response[AnnouncementView]:
        return await once(
            lambda labours: commands.announce(labours, labour_id, text=data.text.strip()),
            AnnouncementView.of,
            status=201,
        )

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
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[Subscribe]
    ) -> Response[SubscriberView]:
        return await once(
            lambda labours: commands.subscribe(labours, labour_id, name=data.name.strip(), phone=data.phone),
            SubscriberView.of,
            status=201,
        )

    @delete(
        "/{labour_id:uuid}/subscribers/{subscriber_id:uuid}",
        status_code=204,
        summary="Somebody is no longer to be told",
    )
    async def unsubscribe(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> Response[None]:
        return await once(
            lambda labours: commands.unsubscribe(labours, labour_id, subscriber_id), lambda _: None, status=204
        )


def _conflict(name: str) -> Callable[[errors.LabourError], Problem]:
    return lambda error: Problem(409, name, str(error), labour_id=str(error.labour_id))


PROBLEMS: Mapping[type[Exception], Callable[[Any], Problem]] = {
    NoSuchLabour: lambda error: Problem(404, "no-such-labour", str(error)),
    NotAPhoneNumber: lambda error: Problem(
        400, "not-a-phone-number", str(error), fields=[{"field": "phone", "problem": str(error)}]
    ),
    TooBusy: lambda _: Problem(
        409, "too-busy", "Too many people are changing this labour at once; try again.", {"Retry-After": "1"}
    ),
    VersionChanged: lambda _: Problem(
        412, "version-changed", "The labour has changed since you looked; get it again and decide anew."
    ),
    KeyInFlight: lambda _: Problem(
        409,
        "request-in-flight",
        "A request with this Idempotency-Key is being handled; try again.",
        {"Retry-After": "1"},
    ),
    KeyReused: lambda _: Problem(
        422, "idempotency-key-reused", "This Idempotency-Key was used for another request; take a new one."
    ),
    errors.LabourAlreadyBegun: _conflict("labour-already-begun"),
    errors.LabourAlreadyCompleted: _conflict("labour-already-completed"),
    errors.TooSoon: lambda error: Problem(
        429, "too-soon", str(error), {"Retry-After": str(math.ceil(error.wait.total_seconds()))}
    ),
    errors.LabourNotBegun: _conflict("labour-not-begun"),
    errors.ContractionRunning: _conflict("contraction-running"),
    errors.ImpossibleTimes: lambda error: Problem(422, "impossible-times", str(error), labour_id=str(error.labour_id)),
    errors.NoSuchContraction: lambda error: Problem(404, "no-such-contraction", str(error)),
    errors.AlreadySubscribed: _conflict("already-subscribed"),
    errors.RosterFull: _conflict("roster-full"),
    errors.NotSubscribed: lambda error: Problem(404, "not-subscribed", str(error), labour_id=str(error.labour_id)),
}
