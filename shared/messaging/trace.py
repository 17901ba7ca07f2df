"""Where something comes from: W3C trace context, carried from the HTTP request through outbox and bus, and the request itself.

The outbox row keeps the `traceparent` that was current when the event was made; otherwise a trace would end at the relay. It
keeps the request, too, for whoever asks later which call an event came from; that stays in the service, the bus never sees it.
"""

import re
import secrets
from contextvars import ContextVar
from datetime import UTC, datetime

_TRACEPARENT = re.compile(r"^00-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}$")

_current: ContextVar[str | None] = ContextVar("traceparent", default=None)
_request: ContextVar[dict[str, str | None] | None] = ContextVar("request", default=None)


def start(incoming: str | None = None) -> str:
    """Continues the trace a caller sent, if it is well formed, or begins a new one."""
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
    at = datetime.now(UTC).isoformat()
    _request.set({"method": method, "path": path, "idempotency_key": idempotency_key, "at": at})


def current_request() -> dict[str, str | None] | None:
    """None in processes that serve no requests."""
    return _request.get()
