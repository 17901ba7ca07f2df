"""The origin of an event: the W3C trace context and the HTTP request that caused it.

The outbox row stores the `traceparent` that was current when the event was recorded; otherwise the trace would end at the relay.
It also stores the request, so that an operator can find the call behind an event. The request is not published.
"""

import re
import secrets
from contextvars import ContextVar

from messaging import clock

_TRACEPARENT = re.compile(r"^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$")

_current: ContextVar[str | None] = ContextVar("traceparent", default=None)
_request: ContextVar[dict[str, str | None] | None] = ContextVar("request", default=None)


def start(incoming: str | None = None) -> str:
    """Continue the caller's trace if its header is well formed, or start a new one."""
    if incoming and _TRACEPARENT.match(incoming):
        trace_id, flags = incoming[3:35], incoming[53:]
    else:
        trace_id, flags = secrets.token_hex(16), "01"
    traceparent = f"00-{trace_id}-{secrets.token_hex(8)}-{flags}"
    _current.set(traceparent)
    return traceparent


def current() -> str:
    return _current.get() or start()


def begin_request(method: str, path: str, idempotency_key: str | None) -> None:
    at = clock.now().isoformat()
    _request.set({"method": method, "path": path, "idempotency_key": idempotency_key, "at": at})


def current_request() -> dict[str, str | None] | None:
    """None in processes that serve no HTTP requests."""
    return _request.get()
