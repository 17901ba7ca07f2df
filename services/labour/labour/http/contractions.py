"""The part of the REST API about contractions, and what they advise."""

from datetime import UTC, datetime
from functools import partial
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from labour.application import commands, queries
from labour.application.command_runner import Once
from labour.application.views import ContractionView, show
from labour.domain.advice import Advice
from labour.http.auth import Caller
from messaging.unit_of_work import UnitsOfWork
from servicekit.web import Items

When = Annotated[datetime, Meta(tz=True, description="RFC 3339 with an offset; now, if left out")]
Intensity = Annotated[int, Meta(ge=0, le=10)]
VIEW = partial(show, ContractionView)


class StartContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    started_at: When | None = None


class EndContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    intensity: Intensity
    ended_at: When | None = None


class CorrectContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is left out stays."""

    started_at: When | None = None
    ended_at: When | None = None
    intensity: Intensity | None = None


class ContractionController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}"
    tags = ("contractions",)

    @post("/contractions", summary="A contraction starts; the first one begins the labour")
    async def start(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[StartContraction]
    ) -> Response[ContractionView]:
        return await once(
            lambda labours: commands.start_contraction(labours, labour_id, data.started_at),
            VIEW,
            status=201,
        )

    @get("/contractions", summary="All contractions, in the order in which they started")
    async def list_contractions(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Items[ContractionView]:
        async with units_of_work() as uow:
            return Items(await queries.list_contractions(uow.session, labour_id, caller.id))

    @put("/contractions/{contraction_id:uuid}/end", summary="A contraction ends; the last five may change the phase")
    async def end(
        self,
        once: NamedDependency[Once],
        labour_id: FromPath[UUID],
        contraction_id: FromPath[UUID],
        data: JSONBody[EndContraction],
    ) -> Response[ContractionView]:
        return await once(
            lambda labours: commands.end_contraction(
                labours, labour_id, contraction_id, ended_at=data.ended_at, intensity=data.intensity
            ),
            VIEW,
        )

    @patch("/contractions/{contraction_id:uuid}", summary="Correct a contraction")
    async def correct(
        self,
        once: NamedDependency[Once],
        labour_id: FromPath[UUID],
        contraction_id: FromPath[UUID],
        data: JSONBody[CorrectContraction],
    ) -> Response[ContractionView]:
        return await once(
            lambda labours: commands.correct_contraction(
                labours,
                labour_id,
                contraction_id,
                started_at=data.started_at,
                ended_at=data.ended_at,
                intensity=data.intensity,
            ),
            VIEW,
        )

    @delete("/contractions/{contraction_id:uuid}", status_code=204, summary="It was none")
    async def remove(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], contraction_id: FromPath[UUID]
    ) -> Response[None]:
        return await once(
            lambda labours: commands.delete_contraction(labours, labour_id, contraction_id), lambda _: None, status=204
        )

    @get("/advice", summary="What to do now, and why; the most urgent first")
    async def advice(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Items[Advice]:
        async with units_of_work() as uow:
            return Items(await queries.get_advice(uow.session, labour_id, caller.id, datetime.now(UTC)))
