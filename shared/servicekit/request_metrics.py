"""Measures every HTTP request by its route, method and status. Refusals count too: of overload, of a token, of a host name."""

import time

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from messaging import metrics
from servicekit.request_trace import method_of

UNROUTED = "none"  # refused before its route was looked up, or there is no such route


def measured(app: ASGIApp) -> ASGIApp:
    """The layer that measures: around all layers that refuse, and inside that of the trace, so that a measurement has its trace.

    A request without an answer, because the client left, has the status 499.
    """

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not metrics.enabled:
            await app(scope, receive, send)
            return
        started, status = time.perf_counter(), 499

        async def send_and_note(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await app(scope, receive, send_and_note)
        finally:
            route = scope.get("path_template") or UNROUTED
            metrics.request_answered(str(route), method_of(scope), status, time.perf_counter() - started)

    return handle
