"""Closing a connection without an answer, which HTTP frameworks do not offer because no honest server would do it."""

from asyncio import AbstractEventLoop, Transport
from typing import Any

from litestar import Request, Response
from uvicorn.config import Config
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.server import ServerState


class CuttableConnection(H11Protocol):
    """Hands every request the means to cut its own connection, as `hang_up` in the ASGI state."""

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: AbstractEventLoop | None = None,
    ) -> None:
        super().__init__(config, server_state, dict(app_state), _loop)

    def connection_made(self, transport: Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state["hang_up"] = transport.abort


async def client_gone(request: Request[Any, Any, Any]) -> None:
    """Returns when the connection is closed, by whichever side. Only after the body was read."""
    while (await request.receive())["type"] != "http.disconnect":
        pass


async def hang_up(request: Request[Any, Any, Any]) -> Response[None]:
    """Cut, and wait until the server has noticed, so that the response which must be returned goes nowhere."""
    request.scope["state"]["hang_up"]()
    await client_gone(request)
    return Response(None)
