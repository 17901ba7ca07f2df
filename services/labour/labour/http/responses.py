"""From a request to a command or query, and from its result to the HTTP response: idempotency key, If-Match, ETag, Location."""

import re
from collections.abc import Awaitable, Callable
from typing import Annotated, Any, Concatenate, ParamSpec, TypeVar
from uuid import UUID

import msgspec
from litestar import Request, Response
from litestar.di import NamedDependency
from litestar.params import FromPath, QueryParameter
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from labour.application.access import CommandContext
from labour.application.allowances import Allowances
from labour.application.command_runner import CommandRunner
from labour.domain.labour import Labour
from labour.http.auth import Caller, Tokens
from messaging.unit_of_work import UnitsOfWork
from servicekit.http.problems import Problem
from servicekit.http.web import Page
from servicekit.idempotency import Answer, Key

_ETAG = re.compile(r'^"v(\d{1,9})"$')
_KEY = re.compile(r'"?([\x21\x23-\x7e]{1,255})"?')

P = ParamSpec("P")
T = TypeVar("T")
C = TypeVar("C")
V = TypeVar("V")


class RunCommand:
    """`await run(command, view, …)` runs `command(context, …)` and responds with the view of its result.

    The status is the one that the route declares.
    """

    def __init__(self, runner: CommandRunner, status: int) -> None:
        self._runner, self._status = runner, status

    async def __call__(
        self,
        command: Callable[Concatenate[CommandContext, P], Awaitable[T]],
        view: Callable[[T], V],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> Response[V]:
        def answer(result: T) -> Answer:
            body = b"" if self._status == 204 else msgspec.json.encode(view(result))
            return Answer(self._status, _headers(result, self._status), body)

        outcome = await self._runner.run(lambda context: command(context, *args, **kwargs), answer)
        stored, replayed = outcome.answer, {"Idempotency-Replayed": "true"} if outcome.replayed else {}
        headers = {**stored.headers, **replayed}
        response: Response[Any] = Response(
            stored.body, status_code=stored.status, headers=headers, media_type="application/json"
        )
        return response


class RunQuery:
    """`await read(question, …)` returns `question(connection, caller, …)`. A question changes nothing."""

    def __init__(self, engine: AsyncEngine, caller: Caller) -> None:
        self._engine, self.caller = engine, caller

    async def __call__(
        self, question: Callable[Concatenate[AsyncConnection, str, P], Awaitable[T]], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        async with self._engine.connect() as connection:
            return await question(connection, self.caller.id, *args, **kwargs)


Run = NamedDependency[RunCommand]
Read = NamedDependency[RunQuery]
Id = FromPath[UUID]

PAGE_SIZE = "The maximum number of items in the page."
AFTER = "The `next` of the previous page. Leave it out for the first page."
After = Annotated[UUID | None, QueryParameter(description=AFTER)]

AnyRequest = Request[Any, Any, Any]


# Each dependency needs only the request: Litestar would start tasks to resolve dependencies of dependencies.
def provide_commands(
    units_of_work: UnitsOfWork, tokens: Tokens, allowances: Allowances
) -> Callable[[AnyRequest], Awaitable[RunCommand]]:
    async def provide(request: AnyRequest) -> RunCommand:
        caller = await tokens.caller(request)
        runner = CommandRunner(units_of_work, caller.id, await _key(request, caller), _seen(request), allowances)
        return RunCommand(runner, request.route_handler.status_code)

    return provide


def provide_queries(engine: AsyncEngine, tokens: Tokens) -> Callable[[AnyRequest], Awaitable[RunQuery]]:
    async def provide(request: AnyRequest) -> RunQuery:
        return RunQuery(engine, await tokens.caller(request))

    return provide


async def page(one_more: Callable[[int], Awaitable[list[T]]], limit: int, cursor: Callable[[T], C]) -> Page[T, C]:
    """Up to `limit` items. The list is asked for one more, which tells whether there is a next page."""
    found = await one_more(limit + 1)
    items = found[:limit]
    return Page(items, cursor(items[-1]) if len(found) > limit else None)


def no_content(_: object) -> None:
    """The view of a command that returns nothing."""


def etag(version: int) -> str:
    return f'"v{version}"'


def _headers(result: object, status: int) -> dict[str, str]:
    if not isinstance(result, Labour):
        return {}
    created = {"Location": f"/api/v1/labours/{result.id}"} if status == 201 else {}
    return {"ETag": etag(result.version), **created}


async def _key(request: AnyRequest, caller: Caller) -> Key | None:
    header = request.headers.get("idempotency-key")
    if header is None:
        return None
    match = _KEY.fullmatch(header)
    if match is None:
        raise Problem(
            400, "bad-idempotency-key", "Idempotency-Key takes 1 to 255 visible characters, such as a UUID in quotes."
        )
    identity = f"{request.method} {request.url.path}\n".encode() + await request.body()
    return Key(caller.id, match[1], identity)


def _seen(request: AnyRequest) -> int | None:
    header = request.headers.get("if-match", "*").strip()
    if header == "*":
        return None
    match = _ETAG.match(header)
    if match is None:
        raise Problem(400, "bad-if-match", "If-Match takes the ETag of a labour as the API returned it, or *.")
    return int(match[1])
