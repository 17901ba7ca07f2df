"""The span of each HTTP request, and the request as the origin of events.

This layer is around all others, so that the log lines of a refused request have its trace, too. Health checks have no span, and
neither have the reads of operators, whose tools read several times a second.
"""

from urllib.parse import parse_qs

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from messaging import origin, telemetry


def traced(app: ASGIApp, *, reads: bool = True) -> ASGIApp:
    """The layer that traces the requests of an application. Without `reads`, a GET has no span."""

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or scope["path"].startswith("/health/"):
            await app(scope, receive, send)
            return
        if scope["method"] == "GET" and not reads:
            await app(scope, receive, send)
            return
        headers = {name: value.decode("latin-1") for name, value in scope["headers"]}
        key = headers.get(b"idempotency-key", "").strip('"')[:255]
        origin.begin_request(scope["method"], scope["path"], key or None)
        incoming = headers.get(b"traceparent") or _in_query(scope["query_string"])
        method = scope["method"]
        with telemetry.request(method, incoming, {"http.request.method": method}) as span:

            async def send_and_note(message: Message) -> None:
                if message["type"] == "http.response.start":
                    span.set_attribute("http.response.status_code", message["status"])
                    if message["status"] >= 500:
                        span.set_status(telemetry.ERROR)
                await send(message)

            await app(scope, receive, send_and_note)
            if span.is_recording() and (route := scope.get("path_template")):
                span.update_name(f"{method} {route}")
                span.set_attribute("http.route", route)
                if labour_id := scope.get("path_params", {}).get("labour_id"):
                    span.set_attribute(telemetry.LABOUR, str(labour_id))

    return handle


def _in_query(query: bytes) -> str | None:
    """A caller that sends no headers of ours, such as the provider with a callback, has the context in the URL it was given."""
    if b"traceparent=" not in query:
        return None
    return parse_qs(query.decode("latin-1")).get("traceparent", [None])[0]
