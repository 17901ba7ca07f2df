"""What the HTTP sides of all services share: problem+json for every error, health, tracing, and the server itself.

Errors follow RFC 9457. A service maps its own errors to problems in one table; everything it forgets is a 500 that says nothing
about our insides.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from http import HTTPStatus
from typing import Any, Generic, TypeVar

import msgspec
import structlog
import uvicorn
from litestar import Litestar, get
from litestar.config.cors import CORSConfig
from litestar.datastructures import MutableScopeHeaders, State
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException, ValidationException
from litestar.openapi import OpenAPIConfig
from litestar.openapi.spec import OpenAPIMediaType, OpenAPIResponse, OpenAPIType, Operation, Schema
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsException, ProblemDetailsPlugin
from litestar.types import ASGIApp, ControllerRouterHandler, Message, Receive, Scope, Send

from messaging import trace
from messaging.database import is_passing
from messaging.errors import RetentionTooShort
from messaging.logs import get_logger

log = get_logger()

PROBLEMS = "urn:fernlabour:problem:"
_NAMES = {401: "not-authorized", 403: "forbidden", 404: "not-found", 405: "method-not-allowed", 413: "too-large"}

PROBLEM_STATUSES = (400, 401, 403, 404, 409, 412, 413, 422, 429, 503)

T = TypeVar("T")


class Items(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]


class Problem(ProblemDetailsException):
    """`name` is stable and ends the problem's type; `detail` is a sentence for a person, without personal data."""

    def __init__(
        self, status: int, name: str, detail: str, headers: Mapping[str, str] | None = None, **facts: Any
    ) -> None:
        super().__init__(
            status_code=status,
            type_=PROBLEMS + name,
            title=name.replace("-", " ").capitalize(),
            detail=detail,
            headers=dict(headers or {}),
            extra=facts or None,
        )


def _from_http(error: HTTPException) -> ProblemDetailsException:
    if isinstance(error, ProblemDetailsException):
        return error
    if isinstance(error, ValidationException):
        fields = [
            {"field": str(item.get("key") or "body"), "problem": str(item.get("message", ""))}
            for item in error.extra or []
            if isinstance(item, Mapping)
        ]
        detail = "; ".join(f"{item['field']}: {item['problem']}" for item in fields) or error.detail
        return Problem(400, "invalid-request", detail, fields=fields)
    return Problem(error.status_code, _NAMES.get(error.status_code, "invalid-request"), error.detail, error.headers)


def _from_anything(error: Exception) -> ProblemDetailsException:
    """A database that is away shows in many ways, also in the driver's own errors while it connects."""
    return _unavailable(error) if is_passing(error) else _from_bug(error)


def _unavailable(error: BaseException) -> ProblemDetailsException:
    log.warning("database unavailable", error=type(error).__name__)
    # It may have gone away between our commit and its answer, so nobody here knows whether anything was changed.
    detail = "The database is not answering just now. Try again, with the same Idempotency-Key if you sent one."
    return Problem(503, "unavailable", detail, {"Retry-After": "1"})


def _from_bug(error: Exception) -> ProblemDetailsException:
    log.error("unexpected error", exc_info=error)
    return Problem(500, "internal-error", "Something went wrong on our side. It is not your request.")


def _tracing(app: ASGIApp) -> ASGIApp:
    async def traced(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
            structlog.contextvars.bind_contextvars(traceparent=trace.start(headers.get(b"traceparent")))
            key = headers.get(b"idempotency-key", "").strip('"')[:255]
            trace.begin_request(scope["method"], scope["path"], key or None)
        await app(scope, receive, send)

    return traced


async def _harden(message: Message, _: Scope) -> None:
    """Headers for answers that hold personal data: kept by nobody, framed by nobody, taken for nothing but what they are."""
    if message["type"] == "http.response.start":
        headers = MutableScopeHeaders.from_message(message)
        headers["X-Content-Type-Options"] = "nosniff"
        headers["Referrer-Policy"] = "no-referrer"
        headers["X-Frame-Options"] = "DENY"
        headers.setdefault("Cache-Control", "no-store")


def _health(ready: Callable[[], Awaitable[None]]) -> list[ControllerRouterHandler]:
    @get("/health/live", summary="The process runs", tags=["health"])
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @get("/health/ready", summary="The process can serve: its database answers", tags=["health"])
    async def is_ready() -> dict[str, str]:
        try:
            async with asyncio.timeout(3):
                await ready()
        except Exception as error:
            log.warning("not ready", error=type(error).__name__)
            raise Problem(503, "not-ready", "The database does not answer.", {"Retry-After": "1"}) from None
        return {"status": "ready"}

    return [live, is_ready]


def create_app(
    *,
    title: str,
    description: str,
    routes: Sequence[ControllerRouterHandler],
    problems: Mapping[type[Exception], Callable[[Any], Problem]],
    dependencies: Mapping[str, Any],
    ready: Callable[[], Awaitable[None]],
    lifespan: Callable[[Litestar], AsyncGenerator[None, None]],
    cors_origins: Sequence[str] = (),
) -> Litestar:
    """Pages of other origins may call us only if they are named in `cors_origins`."""
    table: dict[type[Exception], Callable[[Any], ProblemDetailsException]] = {
        HTTPException: _from_http,
        RetentionTooShort: lambda error: Problem(409, "retention-too-short", f"Refused: {error}."),
        Exception: _from_anything,
        **problems,
    }
    app = Litestar(
        route_handlers=[*routes, *_health(ready)],
        dependencies=dict(dependencies),
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(exception_to_problem_detail_map=table))],
        openapi_config=OpenAPIConfig(title=title, version="1", description=description),
        cors_config=CORSConfig(allow_origins=list(cors_origins)) if cors_origins else None,
        middleware=[_tracing],
        before_send=[_harden],  # also for errors that never reach a middleware
        request_max_body_size=100_000,
        lifespan=[asynccontextmanager(lifespan)],
        state=State({"stopping": asyncio.Event()}),
        logging_config=None,
    )
    _document_problems(app)
    return app


def _document_problems(app: Litestar) -> None:
    """Every route may answer with a problem; the schema says so once for all, in the media type that is really sent."""
    text, number = Schema(type=OpenAPIType.STRING), Schema(type=OpenAPIType.INTEGER)
    problem = Schema(
        type=OpenAPIType.OBJECT,
        properties={"type": text, "title": text, "status": number, "detail": text},
        required=["type", "title", "status", "detail"],
    )
    content = {"application/problem+json": OpenAPIMediaType(schema=problem)}
    for path in (app.openapi_schema.paths or {}).values():
        for method in ("get", "post", "put", "patch", "delete"):
            operation: Operation | None = getattr(path, method)
            if operation is not None:
                documented = {
                    str(status): OpenAPIResponse(description=HTTPStatus(status).phrase, content=content)
                    for status in PROBLEM_STATUSES
                }
                operation.responses = {**(operation.responses or {}), **documented}
                if isinstance(empty := operation.responses.get("204"), OpenAPIResponse):
                    empty.content = None


async def serve(app: Litestar, *, host: str, port: int, stop: asyncio.Event) -> None:
    """Until `stop`; requests under way are finished, for five seconds at most.

    Answers that have no end must watch `app.state.stopping`: the lifespan ends only after the last answer has.
    """
    config = uvicorn.Config(
        app, host=host, port=port, log_config=None, timeout_graceful_shutdown=5, server_header=False
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve())
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    app.state.stopping.set()
    server.should_exit = True
    await serving
    stopping.cancel()


class _Server(uvicorn.Server):
    """Signals are handled by `messaging.process`, for all processes alike."""

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
