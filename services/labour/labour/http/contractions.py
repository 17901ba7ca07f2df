"""REST routes for contractions and the advice that follows from them."""

from datetime import UTC, datetime
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, patch, post, put
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from labour.application import commands, queries
from labour.application.views import ContractionView, show
from labour.domain.advice import Advice
from labour.domain.labour import CONTRACTION_LIMIT
from labour.http.responses import AFTER, PAGE_SIZE, Id, Read, Run, no_content, page
from messaging import clock
from servicekit.http.problems import Problem
from servicekit.http.web import Items, Page

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

    @post(
        "/contractions",
        operation_id="start_contraction",
        summary="Start a contraction.",
        refuses={409: "labour-already-completed contraction-running too-many-contractions", 422: "impossible-times"},
    )
    async def start(self, run: Run, labour_id: Id, data: JSONBody[StartContraction]) -> Response[ContractionView]:
        """Only the mother may. The first contraction begins a planned labour, which notifies its subscribers. One runs at a
        time.
        """
        return await run(commands.start_contraction, VIEW, labour_id, data.started_at)

    @get(
        "/contractions",
        operation_id="list_contractions",
        summary="List contractions, in the order in which they started.",
        refuses={403: "not-yours"},
    )
    async def list_contractions(
        self,
        read: Read,
        labour_id: Id,
        limit: Annotated[int, QueryParameter(ge=1, le=CONTRACTION_LIMIT, description=PAGE_SIZE)] = CONTRACTION_LIMIT,
        after: Annotated[datetime | None, QueryParameter(description=AFTER)] = None,
    ) -> Page[ContractionView, datetime]:
        """The mother and birth partners may, page by page."""
        start = after and _to_utc(after)
        return await page(
            lambda number: read(queries.list_contractions, labour_id, limit=number, after=start),
            limit,
            lambda last: last.started_at,
        )

    @put(
        "/contractions/{contraction_id:uuid}/end",
        operation_id="end_contraction",
        summary="End a contraction.",
        refuses={404: "no-such-contraction", 409: "labour-already-completed", 422: "impossible-times"},
    )
    async def end(
        self, run: Run, labour_id: Id, contraction_id: Id, data: JSONBody[EndContraction]
    ) -> Response[ContractionView]:
        """Only the mother may. The last five finished contractions may change the phase of the labour. Sends no SMS."""
        return await run(commands.end_contraction, VIEW, labour_id, contraction_id, data.ended_at, data.intensity)

    @patch(
        "/contractions/{contraction_id:uuid}",
        operation_id="correct_contraction",
        summary="Correct a contraction.",
        refuses={
            404: "no-such-contraction",
            409: "labour-already-completed contraction-running",
            422: "impossible-times",
        },
    )
    async def correct(
        self, run: Run, labour_id: Id, contraction_id: Id, data: JSONBody[CorrectContraction]
    ) -> Response[ContractionView]:
        """Only the mother may. Of a running contraction only the start can be corrected. Does not change the phase."""
        changes = (data.started_at, data.ended_at, data.intensity)
        return await run(commands.correct_contraction, VIEW, labour_id, contraction_id, *changes)

    @delete(
        "/contractions/{contraction_id:uuid}",
        operation_id="delete_contraction",
        summary="Delete a contraction recorded by mistake.",
        refuses={404: "no-such-contraction", 409: "labour-already-completed"},
    )
    async def remove(self, run: Run, labour_id: Id, contraction_id: Id) -> Response[None]:
        """Only the mother may. Does not change the phase."""
        return await run(commands.delete_contraction, no_content, labour_id, contraction_id)

    @get(
        "/advice",
        operation_id="get_advice",
        summary="Get advice with its reasons, most urgent first.",
        refuses={403: "not-yours"},
    )
    async def advice(self, read: Read, labour_id: Id) -> Items[Advice]:
        """The mother and birth partners may. Advice follows from the contractions of the last hours, and is no medical advice."""
        return Items(await read(queries.get_advice, labour_id, clock.now()))


def _to_utc(after: datetime) -> datetime:
    try:
        if after.tzinfo is not None:
            return after.astimezone(UTC)
    except OverflowError:  # a time of the year 1 or 9999
        pass
    what = "must be the `next` of a page, or a time with an offset such as 2026-11-18T12:00:00Z."
    raise Problem(400, "invalid-request", f"after: {what}", fields=[{"field": "after", "problem": what}])
