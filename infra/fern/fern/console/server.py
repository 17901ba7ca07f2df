"""`fern console serve`: serves the page, tells it what is going on, and does what its buttons say.

The console can kill processes, so nobody else's page may press its buttons: it listens on this machine only, answers only to its
own name (or a page could reach it under a name that it made point here), and a change must come from its own page, as JSON.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Annotated, Any
from uuid import UUID

import httpx
import msgspec
from litestar import Litestar, get, post, put
from litestar.connection import ASGIConnection
from litestar.datastructures import State
from litestar.di import NamedDependency, Provide
from litestar.handlers import BaseRouteHandler
from litestar.params import FromPath, JSONBody
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsPlugin
from litestar.response import File, Stream
from litestar.types import Guard
from msgspec import Meta

from fern.console.actions import Hands, Said
from fern.console.watch import Board, Watch
from fern.errors import FernError
from fern.settings import Settings
from fern.trace import journey
from servicekit.problems import Problem
from servicekit.web import serve

PAGE = Path(__file__).parent / "page"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}
HEADERS = {
    # Names and texts are strangers' words: the page may load and run nothing but its own files.
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'none'",
    "Cache-Control": "no-cache",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
READING = ("GET", "HEAD")
TIMEOUT = 5.0


def own_page_only(port: int) -> Guard:
    names = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def guard(asking: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        host, headers = asking.headers.get("host", ""), asking.headers
        if host not in names:
            raise Problem(403, "wrong-host", f"The console answers to {' and '.join(sorted(names))} only.")
        if asking.scope.get("method") not in READING and not (
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
    return Stream(
        board.listen(state.stopping), media_type="text/event-stream", headers={**HEADERS, "Cache-Control": "no-store"}
    )


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
    hands: NamedDependency[Hands], watch: NamedDependency[Watch], verb: FromPath[str], data: JSONBody[dict[str, str]]
) -> list[Said]:
    watch.nudge()
    said = await hands.act(verb, data)
    watch.nudge()
    return said


@post("/api/processes/{name:str}/kill", status_code=200)
async def kill(
    hands: NamedDependency[Hands], watch: NamedDependency[Watch], name: FromPath[str], data: JSONBody[dict[str, str]]
) -> list[Said]:
    said = await hands.kill(name)
    watch.nudge()
    return [said]


@put("/api/faults/{target:str}/{name:str}")
async def set_fault(
    hands: NamedDependency[Hands],
    watch: NamedDependency[Watch],
    target: FromPath[str],
    name: FromPath[str],
    data: JSONBody[Rate],
) -> list[Said]:
    said = await hands.set_fault(target, name, data.rate)
    watch.nudge()
    return [said]


@post("/api/mend", status_code=200)
async def mend(
    hands: NamedDependency[Hands], watch: NamedDependency[Watch], data: JSONBody[dict[str, str]]
) -> list[Said]:
    said = await hands.mend()
    watch.nudge()
    return said


def create_app(settings: Settings, port: int, board: Board, watch: Watch) -> Litestar:
    http = httpx.AsyncClient(timeout=TIMEOUT, trust_env=False)

    @asynccontextmanager
    async def with_http(_: Litestar) -> AsyncGenerator[None, None]:
        async with http:
            yield

    return Litestar(
        [show_page, page_file, health, live, show_journey, act, kill, set_fault, mend],
        dependencies={
            "settings": Provide(lambda: settings, sync_to_thread=False),
            "board": Provide(lambda: board, sync_to_thread=False),
            "watch": Provide(lambda: watch, sync_to_thread=False),
            "hands": Provide(lambda: Hands(settings, http), sync_to_thread=False),
        },
        guards=[own_page_only(port)],
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(enable_for_all_http_exceptions=True))],
        lifespan=[with_http],
        state=State({"stopping": asyncio.Event()}),
        openapi_config=None,
        logging_config=None,
    )


async def work(settings: Settings, port: int, stop: asyncio.Event) -> None:
    board = Board()
    watch = Watch(settings, board)
    watching = asyncio.create_task(watch.run(stop))
    serving = asyncio.create_task(
        serve(create_app(settings, port, board, watch), host="127.0.0.1", port=port, stop=stop)
    )
    await asyncio.wait([watching, serving], return_when=asyncio.FIRST_COMPLETED)  # one alone would be of no use
    stop.set()
    await asyncio.gather(watching, serving)
