"""The load generator for HTTP: prepared requests over kept-alive connections, in a process of its own."""

import asyncio
import re
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from e2e.experiments.bench.program import Stopwatch

TRIES, WAIT = 50, 0.1  # of a request that is refused because the server is busy, with seconds between them
_LENGTH = re.compile(rb"content-length: *(\d+)", re.IGNORECASE)


async def call(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request and return the status of the answer."""
    return int((await exchange(reader, writer, request))[9:12])


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> bytes:
    """Send a request and return the head of the answer."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    if length := _LENGTH.search(head):
        await reader.readexactly(int(length[1]))
    return head


def encode(path: str, headers: dict[str, str]) -> bytes:
    lines = (f"{name}: {value}" for name, value in {"Host": "localhost", "Content-Length": "0", **headers}.items())
    return "\r\n".join([f"PUT {path} HTTP/1.1", *lines, "", ""]).encode()


async def measure(*, port: int, requests: list[tuple[str, dict[str, str]]], connections: int) -> dict[str, Any]:
    """Send every request until it is not refused with 503, as a client does: on a busy machine a server may be full for a moment.

    `requests` are paths with headers; `at` is when the first was sent, in seconds since 1970. The result counts the last answer
    to each request.
    """
    prepared: Iterator[bytes] = iter([encode(path, headers) for path, headers in requests])
    statuses, taken = Counter[int](), list[float]()
    streams = [await asyncio.open_connection("127.0.0.1", port) for _ in range(connections)]

    async def work(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for request in prepared:
            started = time.perf_counter()
            for _ in range(TRIES):
                if (status := await call(reader, writer, request)) != 503:
                    break
                await asyncio.sleep(WAIT)
            statuses[status] += 1
            taken.append(time.perf_counter() - started)

    watch, at = Stopwatch(), time.time()
    await asyncio.gather(*(work(*stream) for stream in streams))
    result = watch.read(len(requests), statuses=statuses, p50=sorted(taken)[len(taken) // 2], at=at)
    for _, writer in streams:
        writer.close()
    return result
