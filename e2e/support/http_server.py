"""An application behind its real server, in the process of a test."""

import asyncio
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

from litestar import Litestar

from e2e.support.waiting import eventually
from servicekit.http.web import serve


@asynccontextmanager
async def served(app: Litestar | Callable[[str], Litestar]) -> AsyncIterator[str]:
    """Serve the application on a free port; yields its URL. A callable creates the application from that URL."""
    listener = socket.socket(proto=socket.IPPROTO_TCP)  # named as TCP, or asyncio leaves Nagle's algorithm on
    listener.bind(("127.0.0.1", 0))
    address, stop = listener.getsockname(), asyncio.Event()
    url = f"http://127.0.0.1:{address[1]}"
    app = app if isinstance(app, Litestar) else app(url)
    serving = asyncio.create_task(serve(app, listener=listener, stop=stop))

    async def listening() -> bool:
        assert not serving.done(), "the server ended"
        with socket.socket() as probe:
            return probe.connect_ex(address) == 0

    await eventually(listening, what="the server listens")
    try:
        yield url
    finally:
        stop.set()
        await serving
