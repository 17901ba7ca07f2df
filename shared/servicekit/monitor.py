"""A small HTTP listener of every process, for probes and Prometheus. It needs no database, no bus and no token.

GET /health/live    200 and the state of the process as JSON (`messaging.progress`); 503 if it is stuck
GET /health/ready   the same, but 503 also while it waits for a dependency
GET /metrics        Prometheus' text format

It never fails or delays the process: a taken port is logged and the process goes on without a listener; requests and their number
are bounded; each has 5 s. It has no TLS and reveals the state of the process, so it listens on this machine unless MONITOR_HOST
says otherwise.

Environment, with unit and default:
MONITOR_PORT   port of the listener (none: no listener, no `/metrics`); 0 for any free one: `monitor_port` in the heartbeat file
MONITOR_HOST   its address (127.0.0.1)
"""

import asyncio
import contextlib
import json
from collections.abc import Mapping
from typing import Any

from structlog import get_logger

from messaging import progress
from servicekit import metrics_export
from servicekit.http.local_guard import LocalGuard

log = get_logger()

SECONDS = 5.0  # for a request and its answer
MAX_HEAD = 8192  # bytes
MAX_CONNECTIONS = 16

_REASONS = {200: "OK", 400: "Bad Request", 403: "Forbidden", 404: "Not Found", 405: "Method Not Allowed"}


class Monitor:
    """`names` are the host names that it answers to in local mode, beside those of this machine; None means any."""

    def __init__(self, *, step_seconds: float = progress.STEP_SECONDS, names: tuple[str, ...] | None = None) -> None:
        self._step_seconds = step_seconds
        self._app: Any = self._answer if names is None else LocalGuard(self._answer, names)
        self._open = 0
        self.port: int | None = None

    @contextlib.asynccontextmanager
    async def listening(self, host: str, port: int) -> Any:
        try:
            server = await asyncio.start_server(self._connected, host, port, limit=MAX_HEAD, backlog=MAX_CONNECTIONS)
        except OSError as error:
            log.error("no listener for probes and metrics: change MONITOR_PORT", port=port, error=str(error))
            yield
            return
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open += 1
        try:
            if self._open <= MAX_CONNECTIONS:
                async with asyncio.timeout(SECONDS):
                    await self._respond(reader, writer)
        except (OSError, TimeoutError, asyncio.LimitOverrunError, asyncio.IncompleteReadError):
            pass  # the client's fault, and no other is concerned
        except Exception as error:
            log.warning("probe not answered", error=type(error).__name__)
        finally:
            self._open -= 1
            writer.close()

    async def _respond(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        scope = _parse(await reader.readuntil(b"\r\n\r\n"))

        async def send(message: Mapping[str, Any]) -> None:
            if message["type"] == "http.response.start":
                status = message["status"]
                head = f"HTTP/1.1 {status} {_REASONS.get(status, 'Service Unavailable')}\r\n".encode()
                lines = (name + b": " + value + b"\r\n" for name, value in message["headers"])
                writer.write(head + b"".join(lines) + b"connection: close\r\n\r\n")
            else:
                writer.write(message["body"])
                await writer.drain()

        if scope is None:
            await _send(send, 400, "text/plain", b"not HTTP\n")
        else:
            await self._app(scope, None, send)

    async def _answer(self, scope: Any, _receive: Any, send: Any) -> None:
        match scope["method"], scope["path"]:
            case "GET", "/health/live" | "/health/ready" as path:
                now = progress.state(step_seconds=self._step_seconds)
                failing = ("stuck",) if path == "/health/live" else ("stuck", "waiting")
                body = json.dumps(now._asdict()).encode()
                await _send(send, 503 if now.state in failing else 200, "application/json", body)
            case "GET", "/metrics":
                body = await asyncio.to_thread(metrics_export.text)
                await _send(send, 200, metrics_export.CONTENT_TYPE, body)
            case "GET", _:
                await _send(send, 404, "text/plain", b"try /health/live, /health/ready or /metrics\n")
            case _:
                await _send(send, 405, "text/plain", b"only GET\n")


def _parse(head: bytes) -> dict[str, Any] | None:
    """As much of an ASGI scope as the guard and the routes need."""
    request, *lines = head[:-4].split(b"\r\n")
    parts, headers = request.decode("latin-1").split(" "), [line.split(b":", 1) for line in lines]
    if len(parts) != 3 or not parts[2].startswith("HTTP/1.") or any(len(header) != 2 for header in headers):
        return None
    path = parts[1].partition("?")[0]
    return {
        "type": "http",
        "method": parts[0],
        "path": path,
        "headers": [(name.strip().lower(), value.strip()) for name, value in headers],
    }


async def _send(send: Any, status: int, content_type: str, body: bytes) -> None:
    headers = [(b"content-type", content_type.encode()), (b"content-length", str(len(body)).encode())]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": body})
