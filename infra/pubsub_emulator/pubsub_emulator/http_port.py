"""The HTTP side port: health, faults, and the keys that verify push tokens.

GET    /               Ok
GET    /backlog        every subscription: unacked and leased messages, and the age of the oldest in seconds
GET    /faults         every fault, and whether it is on
PUT    /faults/{name}  switch one on: {"rate": 0.5, "topic": "labour.begun"}
DELETE /faults/{name}  switch one off
DELETE /faults         switch all off

`LocalGuard` keeps web pages out. The gRPC port needs no guard: it speaks HTTP/2 without TLS from the first byte,
and no browser does.
"""

import json
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import uvicorn

from pubsub_emulator.broker import Broker
from pubsub_emulator.catalog import now
from pubsub_emulator.errors import BodyTooLarge, PortInUse
from pubsub_emulator.faults import BadFault, Fault, UnknownFault, check_name
from pubsub_emulator.push import Signer
from pubsub_emulator.subscription import Subscription

MAX_BODY = 64 * 1024  # bytes; the settings of a fault are a few dozen


class HttpAnswer:
    def __init__(self, status: int, body: Any, content_type: str = "application/json") -> None:
        """Bytes are sent as they are, anything else as JSON."""
        self.status = status
        self.body = body if isinstance(body, bytes) else json.dumps(body).encode()
        self.content_type = content_type


def _backlog(subscription: Subscription) -> dict[str, Any]:
    oldest = subscription.oldest
    return {
        "subscription": subscription.name.rpartition("/")[2],
        "topic": str(subscription.config.topic).rpartition("/")[2],
        "unacked": subscription.unacked,
        "leased": subscription.leased,
        "oldest_seconds": None if oldest is None else (now() - oldest) / 1e6,
    }


def problem(status: int, title: str, detail: str) -> HttpAnswer:
    body = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    return HttpAnswer(status, body, "application/problem+json")


@asynccontextmanager
async def serving(app: Any, host: str, port: int = 0) -> AsyncIterator[int]:
    """Serve an ASGI application while the block runs. Yields the port that it is bound to."""
    try:
        listener = socket.create_server((host, port))
    except OSError as error:
        raise PortInUse(host, port) from error
    config = uvicorn.Config(
        app, log_config=None, access_log=False, lifespan="off", ws="none", timeout_graceful_shutdown=1
    )
    config.load()
    # Started by hand instead of with `serve()`, which would take over the process's signals.
    server = uvicorn.Server(config)
    server.lifespan = config.lifespan_class(config)
    await server.startup(sockets=[listener])
    try:
        yield listener.getsockname()[1]
    finally:
        await server.shutdown(sockets=[listener])


async def read_body(receive: Any, limit: int) -> bytes:
    """The whole body of an ASGI request. Raises `BodyTooLarge` as soon as it has more bytes than the limit."""
    body, more = b"", True
    while more:
        event = await receive()
        body, more = body + event.get("body", b""), event.get("more_body", False)
        if len(body) > limit:
            raise BodyTooLarge(limit)
    return body


class HttpPort:
    """The ASGI application."""

    def __init__(self, broker: Broker, signer: Signer) -> None:
        self._broker = broker
        self._signer = signer

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        try:
            answer = await self._answer(scope["method"], scope["path"], await read_body(receive, MAX_BODY))
        except BodyTooLarge as error:
            answer = problem(413, "Too large", str(error))
        except UnknownFault as error:
            answer = problem(404, "Unknown fault", str(error))
        except (BadFault, ValueError, RecursionError) as error:
            answer = problem(422, "Bad fault", str(error))
        headers = [(b"content-type", answer.content_type.encode()), (b"content-length", str(len(answer.body)).encode())]
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    async def _answer(self, method: str, path: str, body: bytes) -> HttpAnswer:
        faults = self._broker.faults
        match method, path.strip("/").split("/"):
            case "GET" | "HEAD", [""]:
                return HttpAnswer(200, b"Ok\n", "text/plain")
            case "GET", [".well-known", "openid-configuration"]:
                return HttpAnswer(200, self._signer.discovery())
            case "GET", ["oauth2", "v3", "certs"]:
                return HttpAnswer(200, self._signer.jwks())
            case "GET", ["backlog"]:
                return HttpAnswer(200, {"items": [*map(_backlog, self._broker.catalog.subscriptions.values())]})
            case "GET", ["faults"]:
                return HttpAnswer(200, {"items": faults.listing()})
            case "PUT", ["faults", name]:
                fault = Fault.from_json(name, json.loads(body or b"{}"))
                await self._broker.set_faults({**faults.on, name: fault})
                return HttpAnswer(200, next(item for item in faults.listing() if item["name"] == name))
            case "DELETE", ["faults", name]:
                check_name(name)
                await self._broker.set_faults({other: fault for other, fault in faults.on.items() if other != name})
                return HttpAnswer(204, b"")
            case "DELETE", ["faults"]:
                await self._broker.set_faults({})
                return HttpAnswer(204, b"")
            case _:
                return problem(404, "Not found", f"{method} {path} is not served here; try GET / or GET /faults")
