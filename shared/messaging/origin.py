"""The HTTP request that caused an event. The outbox row stores it, so that an operator can find the call behind an event.

The request is not published. The trace context of an event is (`messaging.telemetry`).
"""

from contextvars import ContextVar

from messaging import clock

_request: ContextVar[dict[str, str | None] | None] = ContextVar("request", default=None)


def begin_request(method: str, path: str, idempotency_key: str | None) -> None:
    at = clock.now().isoformat()
    _request.set({"method": method, "path": path, "idempotency_key": idempotency_key, "at": at})


def current_request() -> dict[str, str | None] | None:
    """None in processes that serve no HTTP requests."""
    return _request.get()
