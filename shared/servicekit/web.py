"""What the HTTP side of every service shares: the application, health routes, tracing, hardened headers, and the server."""

import asyncio
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, TypeVar

import msgspec
import structlog
import uvicorn
from litestar import Litestar, get
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.middleware._internal.cors import CORSMiddleware
from litestar.openapi import OpenAPIConfig
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsPlugin
from litestar.types import ASGIApp, ControllerRouterHandler, Message, Receive, Scope, Send
from structlog import get_logger

from messaging import trace
from servicekit.admission import Admission
from servicekit.connections import HttpConnection, close_late_connections
from servicekit.http_limits import MAX_BODY, HttpLimits
from servicekit.problems import HARDENED, Problem, document_problems, problem_table
from servicekit.request_checks import CheckedRequest, check_head

log = get_logger()

# libuv accepts one connection of a socket in each turn of the event loop. With a turn of a millisecond, 2,500 clients would wait
# for seconds, and a health check behind them. So the socket is listened to several times.
ACCEPTS = 16
OTHER_FILES = 200  # that a process may have open beside its connections

T = TypeVar("T")


class Items(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]


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
    if message["type"] == "http.response.start":
        present = {name.lower() for name, _ in message["headers"]}
        message["headers"] = [*message["headers"], *(header for header in HARDENED if header[0] not in present)]


def _health(ready: Callable[[], Awaitable[None]]) -> list[ControllerRouterHandler]:
    @get("/health/live", summary="Tell whether the process runs.", tags=["health"])
    async def live() -> dict[str, str]:
        return {"status": "live"}

    @get("/health/ready", summary="Tell whether the process can serve: its database answers.", tags=["health"])
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
    limits: HttpLimits,
    operators: tuple[str, ...] = ("/operations/",),
    cors_origins: Sequence[str] = (),
    version: str = "1",
) -> Litestar:
    """Pages of other origins may call the API only if they are listed in `cors_origins`.

    `operators` are the beginnings of the paths of operators' routes, which stay reachable under overload.
    """
    app = Litestar(
        route_handlers=[*routes, *_health(ready)],
        dependencies=dict(dependencies),
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(exception_to_problem_detail_map=problem_table(problems)))],
        openapi_config=OpenAPIConfig(title=title, version=version, description=description),
        middleware=[_tracing],
        before_send=[_harden],  # also for errors that never reach a middleware
        request_max_body_size=MAX_BODY,
        lifespan=[asynccontextmanager(lifespan)],
        state=State({"stopping": asyncio.Event(), "limits": limits}),
        request_class=CheckedRequest,
        logging_config=None,
    )
    # From the inside out. A browser hides an answer without CORS headers from its page, also a refusal.
    admission = app.state.admission = Admission(check_head(app.asgi_handler), limits, operators)
    cors = CORSConfig(allow_origins=list(cors_origins))
    app.asgi_handler = CORSMiddleware(admission, cors) if cors_origins else admission
    document_problems(app)
    return app


async def serve(
    app: Litestar, *, host: str = "", port: int = 0, stop: asyncio.Event, listener: socket.socket | None = None
) -> None:
    """Serve until `stop`, then finish the current requests within five seconds. A bound `listener` replaces host and port.

    An endless answer must watch `app.state.stopping`: the lifespan ends only after the last answer. An application that
    `create_app` did not make has the default limits on connections, and no admission control.
    """
    limits: HttpLimits = app.state.setdefault("limits", HttpLimits())
    _allow_open_files(limits.connections + OTHER_FILES)
    listener = listener or _bind(host, port)
    config = uvicorn.Config(
        app,
        http=HttpConnection,
        ws="none",
        backlog=limits.connections,  # connections that the kernel keeps until they are accepted, or its own limit if that is less
        timeout_keep_alive=limits.keep_alive_seconds,
        timeout_graceful_shutdown=5,
        server_header=False,
        log_config=None,
    )
    server = _Server(config)
    listeners = [listener, *(listener.dup() for _ in range(ACCEPTS - 1))]
    serving = asyncio.create_task(server.serve(listeners))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait([serving, stopping], return_when=asyncio.FIRST_COMPLETED)
    app.state.stopping.set()
    server.should_exit = True
    await serving
    stopping.cancel()


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind((host, port))
    return listener


def _allow_open_files(count: int) -> None:
    """Raise the limit of the process, which is often 1024, as far as the system allows."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


class _Server(uvicorn.Server):
    """Leaves signals to `servicekit.process`, which handles them for every process alike."""

    async def on_tick(self, counter: int) -> bool:
        close_late_connections(self.server_state)
        return await super().on_tick(counter)

    @contextmanager
    def capture_signals(self) -> Generator[None, None, None]:
        yield
