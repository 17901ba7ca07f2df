"""A proxy that treats pings as gRPC's Java servers do, of which Google's Pub/Sub emulator is one.

A client may ping once in `minimum` seconds (300 by default there). After the third ping that comes sooner, the connection is
closed, unless the server has sent headers or data in between. Our emulator cannot stand in for it: gRPC's Python servers also
forgive a client that sends data.
"""

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

PREFACE = 24  # bytes that a client sends before its first frame
DATA, HEADERS, PING = 0, 1, 6
ACK = 1
STRIKES = 2


class Connection:
    def __init__(self, minimum: float) -> None:
        self._minimum, self._strikes, self._last = minimum, 0, float("-inf")

    def server_sent(self, kind: int) -> None:
        if kind in (DATA, HEADERS):
            self._strikes, self._last = 0, float("-inf")

    def too_many(self, kind: int, flags: int) -> bool:
        if kind == PING and not flags & ACK:
            now = time.monotonic()
            if now - self._last >= self._minimum:
                self._last = now
            else:
                self._strikes += 1
        return self._strikes > STRIKES


@asynccontextmanager
async def strict_proxy(target: str, *, minimum: float) -> AsyncIterator[str]:
    """Forwards to `target`, and yields the address to connect to instead."""
    host, _, port = target.partition(":")
    serving = set[asyncio.Task[None]]()

    async def serve(client_in: asyncio.StreamReader, client_out: asyncio.StreamWriter) -> None:
        if task := asyncio.current_task():
            serving.add(task)
        server_in, server_out = await asyncio.open_connection(host, int(port))
        connection = Connection(minimum)

        async def upstream() -> None:
            server_out.write(await client_in.readexactly(PREFACE))
            while True:
                frame, kind, flags = await _frame(client_in)
                if connection.too_many(kind, flags):
                    return
                server_out.write(frame)
                await server_out.drain()

        async def downstream() -> None:
            while True:
                frame, kind, _ = await _frame(server_in)
                connection.server_sent(kind)
                client_out.write(frame)
                await client_out.drain()

        ways = [asyncio.create_task(upstream()), asyncio.create_task(downstream())]
        try:
            await asyncio.wait(ways, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for way in ways:
                way.cancel()
            await asyncio.gather(*ways, return_exceptions=True)
            for writer in (client_out, server_out):
                with suppress(OSError):
                    writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        for task in serving:
            task.cancel()
        await asyncio.gather(*serving, return_exceptions=True)


async def _frame(reader: asyncio.StreamReader) -> tuple[bytes, int, int]:
    """A frame of HTTP/2 with its kind and flags."""
    header = await reader.readexactly(9)
    return header + await reader.readexactly(int.from_bytes(header[:3])), header[3], header[4]
