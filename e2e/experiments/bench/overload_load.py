"""The load generator for `overload`: clients that send without a pause, wait as `Retry-After` says, and retry what was refused.

Beside them, a health check asks whether the process is ready, as an orchestrator does, only more often.
"""

import asyncio
import re
import resource
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

from e2e.experiments.bench.http_load import encode, exchange

PROBE_INTERVAL = 0.2  # seconds
RAMP = 0.5  # seconds in which the clients start
_RETRY_AFTER = re.compile(rb"retry-after: *(\d+)", re.IGNORECASE)
_READY = b"GET /health/ready HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


async def measure(
    *, port: int, requests: list[tuple[str, dict[str, str]]], clients: int, seconds: float
) -> dict[str, Any]:
    """Send requests, and return the seconds of each answer in `admitted`, `refused` and `ready`. Ends after `seconds`, or with
    the last request.
    """
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    prepared: Iterator[bytes] = iter([encode(path, headers) for path, headers in requests])
    statuses, admitted, refused, ready = Counter[int](), list[float](), list[float](), list[float]()
    end = time.perf_counter() + RAMP + seconds

    async def client(number: int) -> None:
        await asyncio.sleep(RAMP * number / clients)
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            for request in prepared:
                while time.perf_counter() < end:
                    started = time.perf_counter()
                    head = await exchange(reader, writer, request)
                    taken, status = time.perf_counter() - started, int(head[9:12])
                    statuses[status] += 1
                    (refused if status == 503 else admitted).append(taken)
                    if status != 503:
                        break
                    pause = _RETRY_AFTER.search(head)
                    left = max(0.0, end - time.perf_counter())
                    await asyncio.sleep(min(int(pause[1]) if pause else 0, left))
                else:
                    return
        finally:
            writer.close()

    async def probe() -> None:
        while True:
            started = time.perf_counter()
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = await exchange(reader, writer, _READY)
            ready.append(time.perf_counter() - started)
            statuses[-int(head[9:12])] += 1  # negative: the answers to the health check
            writer.close()
            await asyncio.sleep(PROBE_INTERVAL)

    probing, working = asyncio.create_task(probe()), [asyncio.create_task(client(number)) for number in range(clients)]
    await asyncio.wait(working, timeout=end - time.perf_counter())
    result = {"count": len(admitted), "seconds": time.perf_counter() - end + RAMP + seconds}
    await asyncio.gather(*working)
    probing.cancel()
    return {**result, "statuses": statuses, "admitted": admitted, "refused": refused, "ready": ready}
