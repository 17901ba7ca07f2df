"""Measures every HTTP request by its route, method and status. Refusals count too: of overload, of a token, of a host name."""

import time

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from messaging import metrics
from servicekit.http.request_trace import method_of

UNROUTED = "none"  # refused before its route was looked up, or there is no such route
# Who sends requests to these paths; all others come from clients. Probes are not counted. The bus is a caller of its own, because
# the answer 503 tells it to deliver an event again, for example one that is early.
CALLERS = {"/health/": None, "/metrics": None, "/webhooks/": "provider", "/pubsub/": "bus"}


def measured(app: ASGIApp) -> ASGIApp:
    """The layer that measures: around all layers that refuse, and inside that of the trace, so that a measurement has its trace.

    A request is measured when its answer begins, because a stream ends only with its client. A request without an answer, because
    the client left, has the status 499.
    """

    async def handle(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP or not metrics.enabled:
            await app(scope, receive, send)
            return
        started, is_measured = time.perf_counter(), False

        def measure(status: int) -> None:
            nonlocal is_measured
            is_measured = True
            route = scope.get("path_template") or UNROUTED
            metrics.request_answered(
                str(route), method_of(scope), status, time.perf_counter() - started, _caller(scope["path"])
            )

        async def send_and_measure(message: Message) -> None:
            if message["type"] == "http.response.start":
                measure(message["status"])
            await send(message)

        try:
            await app(scope, receive, send_and_measure)
        finally:
            if not is_measured:
                measure(499)

    return handle


def _caller(path: str) -> str | None:
    return next((caller for prefix, caller in CALLERS.items() if path.startswith(prefix)), "client")
