"""What the HTTP side of every service shares: the application, health routes, tracing, hardened headers, and the server."""

import asyncio
import resource
import socket
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec
import uvicorn
from litestar import Litestar, get
from litestar.config.cors import CORSConfig
from litestar.datastructures import State
from litestar.middleware._internal.cors import CORSMiddleware
from litestar.openapi.plugins import JsonRenderPlugin, OpenAPIRenderPlugin
from litestar.plugins.problem_details import ProblemDetailsConfig, ProblemDetailsPlugin
from litestar.types import ASGIApp, ControllerRouterHandler, Message, Scope
from structlog import get_logger

from servicekit.http.admission import Admission
from servicekit.http.api_document import BEARER, Document
from servicekit.http.api_page import ApiPage
from servicekit.http.connections import HttpConnection, close_late_connections
from servicekit.http.http_limits import MAX_BODY, HttpLimits
from servicekit.http.local_guard import LocalGuard
from servicekit.http.operator_access import OperatorSettings
from servicekit.http.operator_guard import require_token
from servicekit.http.problems import HARDENED, Problem, problem_table
from servicekit.http.request_checks import CheckedRequest, check_head
from servicekit.http.request_metrics import measured
from servicekit.http.request_trace import traced
from servicekit.http.security_log import SecurityLog, mark_refused

log = get_logger()

# libuv accepts one connection of a socket in each turn of the event loop. With a turn of a millisecond, 2,500 clients would wait
# for seconds, and so would a health check that comes after them. So several listeners accept connections of one socket.
ACCEPTS = 16
OTHER_FILES = 200  # that a process may have open beside its connections

T = TypeVar("T")
C = TypeVar("C")


class Items(msgspec.Struct, Generic[T], frozen=True):
    items: list[T]


class Page(msgspec.Struct, Generic[T, C], frozen=True):
    """`next` is the `after` of the next page, or null on the last one."""

    items: list[T]
    next: C | None


async def _harden(message: Message, _: Scope) -> None:
    if message["type"] == "http.response.start":
        present = {name.lower() for name, _ in message["headers"]}
        message["headers"] = [*message["headers"], *(header for header in HARDENED if header[0] not in present)]


def _health(ready: Callable[[], Awaitable[None]]) -> list[ControllerRouterHandler]:
    @get(
        "/health/live",
        operation_id="check_liveness",
        summary="Tell whether the process runs.",
        tags=["health"],
        example={"status": "live"},
    )
    async def live() -> dict[str, str]:
        """Any caller may. Asks nothing of the database, and is answered while the process refuses other requests."""
        return {"status": "live"}

    @get(
        "/health/ready",
        operation_id="check_readiness",
        summary="Tell whether the process can serve: its database answers.",
        tags=["health"],
        refuses={503: "not-ready"},
        example={"status": "ready"},
    )
    async def is_ready() -> dict[str, str]:
        """Any caller may. Costs one query on a connection of its own, with a limit of 3 s."""
        try:
            async with asyncio.timeout(3):
                await ready()
        except Exception as error:
            log.warning("not ready", error=type(error).__name__)
            raise Problem(503, "not-ready", "The database does not answer.", {"Retry-After": "1"}) from None
        return {"status": "ready"}

    return [live, is_ready]


class Apis(NamedTuple):
    """The two applications of a process. `public` owns what both use, and closes it after its own last answer. An operator's
    request that takes longer keeps the connection that it has, but wakes no other process any more.
    """

    public: Litestar
    operators: Litestar


def create_app(
    document: Document,
    *,
    routes: Sequence[ControllerRouterHandler],
    problems: Mapping[type[Exception], Callable[[Any], Problem]],
    dependencies: Mapping[str, Any],
    ready: Callable[[], Awaitable[None]],
    lifespan: Callable[[Litestar], AsyncGenerator[None, None]],
    limits: HttpLimits,
    cors_origins: Sequence[str] = (),
    local_names: Sequence[str] = (),
    page_token: Callable[[], str] | None = None,
    log_key: str = "",
    log_kinds: Mapping[str, str] | None = None,
    refusals: tuple[type[Exception], ...] = (),
    callback: str = "",
) -> Litestar:
    """Pages of other origins may call the API only if they are listed in `cors_origins`.

    `local_names` are for local mode, where every secret is known: the server then answers only to them and to the names of this
    machine, because a page could otherwise reach it under a name of its own. In local mode `page_token` makes the token that the
    page of the API fills in. `log_key` and `log_kinds` are the options of `SecurityLog`, which also logs the errors of
    `refusals`, whatever their status. `callback` is the option of `traced`.
    """
    if page_token and not local_names:
        raise ValueError("A token for the page of the API is for local mode only: every visitor could use it.")
    plugins = [ApiPage(page_token), JsonRenderPlugin()]
    app = _application(
        [*routes, *_health(ready)], problems, dependencies, document, plugins, limits, [asynccontextmanager(lifespan)]
    )

    async def mark_refusal(error: Exception, scope: Scope) -> None:
        if isinstance(error, refusals):
            mark_refused(scope)

    app.after_exception.append(mark_refusal)
    # The innermost layer first. CORS is outside those that refuse: a browser hides an answer without its headers from the page.
    admission = app.state.admission = Admission(check_head(app.asgi_handler), limits)
    cors = CORSConfig(allow_origins=list(cors_origins))
    inner: ASGIApp = CORSMiddleware(admission, cors) if cors_origins else admission
    if local_names:
        inner = LocalGuard(inner, local_names, cors_origins)
    app.asgi_handler = traced(measured(SecurityLog(app, inner, key=log_key, kinds=log_kinds)), callback=callback)
    return app


def create_operator_app(
    document: Document,
    *,
    routes: Sequence[ControllerRouterHandler],
    problems: Mapping[type[Exception], Callable[[Any], Problem]],
    dependencies: Mapping[str, Any],
    limits: HttpLimits,
    operators: OperatorSettings,
    local_names: Sequence[str] = (),
) -> Litestar:
    """The routes that only operators may call, with a document of their own. Every request needs a token.

    `local_names` as for `create_app`.
    """
    limits = limits.for_operators()
    app = _application(routes, problems, dependencies, document, [JsonRenderPlugin()], limits, security=[{BEARER: []}])
    admission = app.state.admission = Admission(check_head(app.asgi_handler), limits)
    inner = require_token(admission, operators.tokens)
    logged = SecurityLog(app, LocalGuard(inner, local_names) if local_names else inner)
    app.asgi_handler = traced(measured(logged), reads=False)
    return app


def _application(
    routes: Sequence[ControllerRouterHandler],
    problems: Mapping[type[Exception], Callable[[Any], Problem]],
    dependencies: Mapping[str, Any],
    document: Document,
    plugins: Sequence[OpenAPIRenderPlugin],
    limits: HttpLimits,
    lifespan: Sequence[Any] = (),
    security: list[dict[str, list[str]]] | None = None,
) -> Litestar:
    app = Litestar(
        route_handlers=routes,
        dependencies=dict(dependencies),
        plugins=[ProblemDetailsPlugin(ProblemDetailsConfig(exception_to_problem_detail_map=problem_table(problems)))],
        openapi_config=document.config(*plugins),
        security=security,
        before_send=[_harden],  # also for errors that never reach a middleware
        request_max_body_size=MAX_BODY,
        lifespan=lifespan,
        state=State({"stopping": asyncio.Event(), "limits": limits}),
        request_class=CheckedRequest,
        logging_config=None,
    )
    document.complete(app)
    return app


async def serve_apis(apis: Apis, *, host: str, port: int, operators: OperatorSettings, stop: asyncio.Event) -> None:
    """Serve both until `stop`, each on a listener of its own. Operators' port 0 means the public one only.

    Both ports are bound before either is served, so a process whose port is taken ends at once.
    """
    served = [(apis.public, _bind(host, port))]
    if operators.port:
        served.append((apis.operators, _bind(operators.host, operators.port)))
    async with asyncio.TaskGroup() as serving:
        for app, listener in served:
            serving.create_task(serve(app, listener=listener, stop=stop))


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
