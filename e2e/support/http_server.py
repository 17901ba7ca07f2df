"""An application behind its real server, in the process of a test."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from litestar import Litestar

from e2e.support.ports import free_port
from e2e.support.waiting import eventually
from servicekit.web import serve


@asynccontextmanager
async def served(app: Litestar) -> AsyncIterator[str]:
    """Serve the application on a free port; yields its URL."""
    port, stop = free_port(), asyncio.Event()
    serving = asyncio.create_task(serve(app, host="127.0.0.1", port=port, stop=stop))

    async def listening() -> bool:
        assert not serving.done(), "the server ended"
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", port)) == 0

    await eventually(listening, what="the server listens")
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        stop.set()
        await serving
