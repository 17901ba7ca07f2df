"""Parts of the tests of live streams: a client that reads server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

from httpx import AsyncClient

NEVER = 3600.0
DEADLINE = 60.0  # ends a test that has failed anyway


class Seen(NamedTuple):
    kind: str
    id: str | None
    data: Any


@asynccontextmanager
async def following(client: AsyncClient, labour: str) -> AsyncIterator[AsyncIterator[str]]:
    """The lines of a stream."""
    async with client.stream("GET", f"{labour}/events", timeout=DEADLINE) as answer:
        assert answer.status_code == 200
        assert answer.headers["content-type"].startswith("text/event-stream")
        assert answer.headers["cache-control"] == "no-store"
        yield answer.aiter_lines()


async def next_event(lines: AsyncIterator[str]) -> Seen:
    fields = dict[str, str]()
    async with asyncio.timeout(DEADLINE):
        async for line in lines:
            name, _, value = line.partition(": ")
            if line == "" and "data" in fields:
                return Seen(fields["event"], fields.get("id"), json.loads(fields["data"]))
            fields[name] = value
    raise AssertionError("the stream ended")
