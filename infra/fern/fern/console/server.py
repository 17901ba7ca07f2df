"""Serves the console's page, streams the state of the system to it, and carries out its actions.

The console can kill processes, so no other page may use it. It listens on this machine only; it answers only to its own host
names, against DNS rebinding; and it accepts a change only from its own page, as JSON.
"""

import asyncio
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import msgspec
from litestar import Litestar, Request, Router, get, post, put
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsPlugin
from litestar.response import File, Stream
from litestar.types import Guard
from msgspec import Meta

from fern.client import AsyncClient
from fern.console.actions import ActionResult, Actions
from fern.console.watch import Board, Watch
from fern.errors import FernError
from fern.settings import Settings
from fern.trace import journey
from servicekit.problems import Problem
from servicekit.web import serve

PAGE = Path(__file__).parent / "page"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}
HEADERS = {
    # Names and texts come from users: the page may load and run nothing but its own files.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
READING = ("GET", "HEAD")
TIMEOUT = 5.0


def own_page_only(port: int) -> Guard:
    names = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        host, headers = connection.headers.get("host", ""), connection.headers
        if host not in names:
            raise Problem(403, "wrong-host", f"The console answers to {' and '.join(sorted(names))} only.")
        if connection.scope.get("method") not in READING and not (
            headers.get("origin") == f"http://{host}"
            and headers.get("sec-fetch-site", "same-origin") == "same-origin"
            and headers.get("content-type", "").startswith("application/json")
        ):
            raise Problem(403, "not-the-console", "Only the console's own page may change things, with JSON.")

    return guard


@get("/", name="index")
async def show_page() -> File:
    return _file("index.html")


@get("/page/{name:str}")
async def page_file(name: FromPath[str]) -> File:
    if name not in {path.name for path in PAGE.iterdir()}:
        raise Problem(404, "not-found", f"The page has no file {name}.")
    return _file(name)


def _file(name: str) -> File:
    path = PAGE / name
    return File(path, media_type=TYPES[path.suffix], content_disposition_type="inline", headers=HEADERS)


@get("/health")
async def health() -> dict[str, str]:
    return {"status": "ok"}


@get("/api/live")
async def live(state: State, board: NamedDependency[Board]) -> Stream:
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Stream(board.listen(state.stopping), media_type="text/event-stream", headers=headers)


@get("/api/journey/{event_id:uuid}")
async def show_journey(settings: NamedDependency[Settings], event_id: FromPath[UUID]) -> dict[str, Any]:
    try:
        return (await asyncio.to_thread(journey, settings, str(event_id))).to_json()
    except FernError as error:
        raise Problem(503, "no-journey", error.message) from None


class Rate(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    rate: Annotated[float, Meta(ge=0, le=1)]


@post("/api/labour/{verb:str}", status_code=200)
async def act(
    actions: NamedDependency[Actions], verb: FromPath[str], data: JSONBody[dict[str, str]]
) -> list[ActionResult]:
    return await actions.act(verb, data)


@post("/api/processes/{name:str}/kill", status_code=200)
async def kill(actions: NamedDependency[Actions], name: FromPath[str]) -> list[ActionResult]:
    return [await actions.kill(name)]


@put("/api/faults/{target:str}/{name:str}")
async def set_fault(
    actions: NamedDependency[Actions], target: FromPath[str], name: FromPath[str], data: JSONBody[Rate]
) -> list[ActionResult]:
    return [await actions.set_fault(target, name, data.rate)]


@post("/api/faults/clear", status_code=200)
async def clear_faults(actions: NamedDependency[Actions]) -> list[ActionResult]:
    return await actions.clear_faults()


def create_app(settings: Settings, port: int, board: Board, watch: Watch) -> Litestar:
    client = AsyncClient(settings, TIMEOUT)

    def nudge(_: Request[Any, Any, Any]) -> None:
        watch.nudge()

    changing = [act, kill, set_fault, clear_faults]
    changes = Router("/", route_handlers=changing, before_request=nudge, after_response=nudge)
    return Litestar(
        [show_page, page_file, health, live, show_journey, changes],
        dependencies={
            "settings": Provide(lambda: settings, sync_to_thread=False),
            "board": Provide(lambda: board, sync_to_thread=False),
            "actions": Provide(lambda: Actions(settings, client), sync_to_thread=False),
        },
        guards=[own_page_only(port)],
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(enable_for_all_http_exceptions=True))],
        lifespan=[client],
        state=State({"stopping": asyncio.Event()}),
        openapi_config=None,
        logging_config=None,
    )


async def work(settings: Settings, port: int, stop: asyncio.Event) -> None:
    """Serve and watch until `stop`. If one of the two fails, the other stops too."""
    board = Board()
    watch = Watch(settings, board)
    app = create_app(settings, port, board, watch)
    watching = asyncio.create_task(watch.run(stop))
    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=port, stop=stop))
    await asyncio.wait([watching, serving], return_when=asyncio.FIRST_COMPLETED)
    stop.set()
    await asyncio.gather(watching, serving)
