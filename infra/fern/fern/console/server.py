"""Serves the console's page, streams the state of the system to it, and carries out its actions.

The console can kill processes, so no other page may use it. It listens on this machine only; it answers only to its own host
names, against DNS rebinding; and it accepts a change only from its own page, as JSON. Telemetry is the exception: processes send
it, so a request from any page is refused there.
"""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from litestar import Litestar, Request, Response, Router, get, post, put
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
from fern.console.board import Board
from fern.console.events import show_document, show_events
from fern.console.headers import HEADERS
from fern.console.set_aside import DeadGroup, DeadVerb, ParkedGroup, ParkedVerb, SetAside
from fern.console.stories import STORIES, Stories, Story
from fern.console.telemetry import ROUTES, Telemetry
from fern.console.watch import Watch
from fern.dead_letters import groups_of
from fern.errors import FernError
from fern.runtime.system import hold_process, kill_process, release_process
from fern.settings import Settings
from fern.trace import journey
from servicekit.http.problems import Problem
from servicekit.http.web import serve

PAGE = Path(__file__).parent / "page"
TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml", ".html": "text/html"}
READING = ("GET", "HEAD")
TIMEOUT = 5.0


def own_page_only(port: int) -> Guard:
    names = {f"127.0.0.1:{port}", f"localhost:{port}"}

    def guard(connection: ASGIConnection[Any, Any, Any, Any], handler: BaseRouteHandler) -> None:
        host, headers = connection.headers.get("host", ""), connection.headers
        if host not in names:
            raise Problem(403, "wrong-host", f"The console answers to {' and '.join(sorted(names))} only.")
        if handler.opt.get("for_processes"):
            if "origin" in headers or "sec-fetch-site" in headers:
                raise Problem(403, "from-a-page", "Only processes may send telemetry; this came from a web page.")
        elif connection.scope.get("method") not in READING and not (
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
async def live(state: State, board: NamedDependency[Board], telemetry: NamedDependency[Telemetry]) -> Stream:
    telemetry.show_metrics()
    headers = {**HEADERS, "Cache-Control": "no-store"}
    return Stream(board.listen(state.stopping), media_type="text/event-stream", headers=headers)


@get("/api/journey/{event_id:uuid}")
async def show_journey(settings: NamedDependency[Settings], event_id: FromPath[UUID]) -> dict[str, Any]:
    try:
        return (await asyncio.to_thread(journey, settings, str(event_id))).to_json()
    except FernError as error:
        raise Problem(503, "no-journey", error.message) from None


class Reply(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    phone: str
    body: Annotated[str, Meta(min_length=1, max_length=160)]


class Consent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    mode: Literal["required", "assumed"]


CHANGES: dict[str, Callable[[Settings, str], str]] = {
    "kill": kill_process,
    "hold": hold_process,
    "release": release_process,
}


@post("/api/labour/{verb:str}", status_code=200)
async def act(
    actions: NamedDependency[Actions], verb: FromPath[str], data: JSONBody[dict[str, str]]
) -> list[ActionResult]:
    return await actions.act(verb, data)


@post("/api/processes/{name:str}/{change:str}", status_code=200)
async def change_process(
    actions: NamedDependency[Actions], watch: NamedDependency[Watch], name: FromPath[str], change: FromPath[str]
) -> list[ActionResult]:
    if change not in CHANGES:
        raise Problem(404, "no-such-change", f"A process can be told to {', '.join(CHANGES)}, not to {change}.")
    result = await actions.change_process(CHANGES[change], name)
    if result.ok and change != "release":
        watch.show_killed(name)
    return [result]


@put("/api/faults/{target:str}/{name:str}")
async def set_fault(
    actions: NamedDependency[Actions], target: FromPath[str], name: FromPath[str], data: JSONBody[dict[str, Any]]
) -> list[ActionResult]:
    return [await actions.set_fault(target, name, data)]


@post("/api/faults/clear", status_code=200)
async def clear_faults(actions: NamedDependency[Actions], stories: NamedDependency[Stories]) -> list[ActionResult]:
    return [*await actions.clear_faults(), *await stories.end()]


@post("/api/phones/reply", status_code=200)
async def reply(actions: NamedDependency[Actions], data: JSONBody[Reply]) -> list[ActionResult]:
    return [await actions.reply(data.phone, data.body)]


@put("/api/consent")
async def set_consent(actions: NamedDependency[Actions], data: JSONBody[Consent]) -> list[ActionResult]:
    return [await actions.set_consent(data.mode)]


@get("/api/stories")
async def list_stories() -> list[Story]:
    return list(STORIES.values())


@post("/api/stories/{name:str}", status_code=200)
async def play_story(stories: NamedDependency[Stories], name: FromPath[str]) -> list[ActionResult]:
    return await stories.play(name)


@get("/api/set-aside/dead")
async def list_dead(set_aside: NamedDependency[SetAside], watch: NamedDependency[Watch]) -> dict[str, Any]:
    letters, most = await set_aside.dead()
    watch.show_dead(letters)
    return {"groups": groups_of(letters), "more": most}


@get("/api/set-aside/parked")
async def list_parked(set_aside: NamedDependency[SetAside]) -> dict[str, Any]:
    return await set_aside.parked()


@post("/api/set-aside/dead/look", status_code=200)
async def look_at_dead(set_aside: NamedDependency[SetAside], data: JSONBody[DeadGroup]) -> dict[str, Any]:
    return await set_aside.look_at_dead(data)


@post("/api/set-aside/parked/look", status_code=200)
async def look_at_parked(set_aside: NamedDependency[SetAside], data: JSONBody[ParkedGroup]) -> dict[str, Any]:
    return await set_aside.look_at_parked(data)


@post("/api/set-aside/dead/change/{verb:str}", status_code=200)
async def change_dead(
    set_aside: NamedDependency[SetAside], verb: FromPath[DeadVerb], data: JSONBody[DeadGroup]
) -> list[ActionResult]:
    return [await set_aside.change_dead(verb, data)]


@post("/api/set-aside/parked/change/{verb:str}", status_code=200)
async def change_parked(
    set_aside: NamedDependency[SetAside], verb: FromPath[ParkedVerb], data: JSONBody[ParkedGroup]
) -> list[ActionResult]:
    return [await set_aside.change_parked(verb, data)]


READS = [show_page, page_file, show_events, show_document, health, live, show_journey]
LISTS = [list_stories, list_dead, list_parked]
CHANGING = [act, change_process, set_fault, clear_faults, reply, set_consent, play_story]
SET_ASIDE = [look_at_dead, look_at_parked, change_dead, change_parked]


def refuse(_: Request[Any, Any, Any], error: FernError) -> Response[dict[str, Any]]:
    """Answer 503 for an API that does not answer, or that refuses."""
    problem = {"type": "about:blank", "status": 503, "title": "unavailable", "detail": error.message}
    return Response(problem, status_code=503, media_type="application/problem+json")


def create_app(settings: Settings, port: int, board: Board, watch: Watch) -> Litestar:
    client = AsyncClient(settings, TIMEOUT)
    stories, telemetry = Stories(settings, client), Telemetry(board)

    def nudge(_: Request[Any, Any, Any]) -> None:
        watch.nudge()

    changes = Router("/", route_handlers=[*CHANGING, *SET_ASIDE], before_request=nudge, after_response=nudge)
    return Litestar(
        [*READS, *LISTS, *ROUTES, changes],
        dependencies={
            "settings": Provide(lambda: settings, sync_to_thread=False),
            "board": Provide(lambda: board, sync_to_thread=False),
            "watch": Provide(lambda: watch, sync_to_thread=False),
            "actions": Provide(lambda: Actions(settings, client), sync_to_thread=False),
            "stories": Provide(lambda: stories, sync_to_thread=False),
            "telemetry": Provide(lambda: telemetry, sync_to_thread=False),
            "set_aside": Provide(lambda: SetAside(client), sync_to_thread=False),
        },
        guards=[own_page_only(port)],
        exception_handlers={FernError: refuse},
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
