"""REST routes for contractions and the advice that follows from them."""

from datetime import datetime
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.params import JSONBody
from msgspec import Meta

from labour.application import commands, queries
from labour.application.views import ContractionView, show
from labour.domain.advice import Advice
from labour.http.responses import Id, Read, Run, no_content
from messaging import clock
from servicekit.web import Items

When = Annotated[datetime, Meta(tz=True, description="RFC 3339 with an offset; the current time if left out")]
Intensity = Annotated[int, Meta(ge=0, le=10)]
VIEW = show(ContractionView)


class StartContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    started_at: When | None = None


class EndContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The last five finished contractions may change the phase of the labour."""

    intensity: Intensity
    ended_at: When | None = None


class CorrectContraction(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A field that is left out keeps its value."""

    started_at: When | None = None
    ended_at: When | None = None
    intensity: Intensity | None = None


class ContractionController(Controller):
    path = "/api/v1/labours/{labour_id:uuid}"
    tags = ("contractions",)

    @post("/contractions", summary="Start a contraction. The first one begins the labour. Only the mother may.")
    async def start(self, run: Run, labour_id: Id, data: JSONBody[StartContraction]) -> Response[ContractionView]:
        return await run(commands.start_contraction, VIEW, labour_id, data.started_at)

    @get("/contractions", summary="List contractions by start. The mother and birth partners may.")
    async def list_contractions(self, read: Read, labour_id: Id) -> Items[ContractionView]:
        return Items(await read(queries.list_contractions, labour_id))

    @put("/contractions/{contraction_id:uuid}/end", summary="End a contraction. Only the mother may.")
    async def end(
        self, run: Run, labour_id: Id, contraction_id: Id, data: JSONBody[EndContraction]
    ) -> Response[ContractionView]:
        return await run(commands.end_contraction, VIEW, labour_id, contraction_id, data.ended_at, data.intensity)

    @patch("/contractions/{contraction_id:uuid}", summary="Correct a contraction. Only the mother may.")
    async def correct(
        self, run: Run, labour_id: Id, contraction_id: Id, data: JSONBody[CorrectContraction]
    ) -> Response[ContractionView]:
        changes = (data.started_at, data.ended_at, data.intensity)
        return await run(commands.correct_contraction, VIEW, labour_id, contraction_id, *changes)

    @delete(
        "/contractions/{contraction_id:uuid}", summary="Delete a contraction recorded by mistake. Only the mother may."
    )
    async def remove(self, run: Run, labour_id: Id, contraction_id: Id) -> Response[None]:
        return await run(commands.delete_contraction, no_content, labour_id, contraction_id)

    @get("/advice", summary="Get advice with its reasons, most urgent first. The mother and birth partners may.")
    async def advice(self, read: Read, labour_id: Id) -> Items[Advice]:
        return Items(await read(queries.get_advice, labour_id, clock.now()))
