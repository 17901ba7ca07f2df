"""The span of each HTTP request, and the request as the origin of events.

This layer is around all others, so that the log lines of a refused request have its trace, too. Health checks have no span, and
neither have the reads of operators, whose tools read several times a second. Nor has a request that a service's provider or bus
sends about a message whose trace is not sampled: it would be a trace of its own, of the end of a story without its beginning.
"""

from urllib.parse import parse_qs

from litestar.enums import ScopeType
from litestar.types import ASGIApp, HTTPScope, Message, Receive, Scope, Send

from messaging import origin, telemetry

METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
OTHER = "_OTHER"  # any other method, whose name the client has made up


def traced(app: ASGIApp, *, reads: bool = True, callback: str = "") -> ASGIApp:
    """The layer that traces the requests of an application. Without `reads`, a GET has no span.

    `callback` is the path of requests that have their trace context in the query, because the caller sends no headers of ours. An
    application with such a path is called about what it did: its requests continue a trace or have no span.
    """

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"].startswith("/health/"):
            await app(scope, receive, send)
            return
        if scope["method"] == "GET" and not reads:
            await app(scope, receive, send)
            return
        key = _header(scope, b"idempotency-key").strip('"')[:255]
        origin.begin_request(scope["method"], scope["path"], key or None)
        incoming = _in_query(scope["query_string"]) if scope["path"] == callback else ""
        incoming = incoming or _header(scope, b"traceparent")
        if callback and not telemetry.continues(incoming):
            await app(scope, receive, send)
            return
        method = method_of(scope)
        name = "HTTP" if method == OTHER else method
        with telemetry.request(name, incoming, {"http.request.method": method}) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(telemetry.ERROR)
                await send(message)

            await app(scope, receive, send_and_note)
            if span.is_recording() and (route := scope.get("path_template")):
                span.update_name(f"{name} {route}")
                span.set_attribute("http.route", route)
                if labour_id := scope.get("path_params", {}).get("labour_id"):
                    span.set_attribute(telemetry.LABOUR, str(labour_id))

    return handle


def method_of(scope: HTTPScope) -> str:
    """The method as a label: of a few values."""
    return scope["method"] if scope["method"] in METHODS else OTHER


def _header(scope: HTTPScope, name: bytes) -> str:
    """The value of a header, or an empty string."""
    for found, value in scope["headers"]:
        if found == name:
            return value.decode("latin-1")
    return ""


def _in_query(query: bytes) -> str:
    if b"traceparent=" not in query:
        return ""
    return parse_qs(query.decode("latin-1")).get("traceparent", [""])[0]
