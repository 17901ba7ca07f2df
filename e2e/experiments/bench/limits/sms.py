"""The limit of sending: a bare HTTP client with 50 calls in flight, and no ledger."""

import asyncio
from typing import Any

import aiohttp

from e2e.experiments.bench.program import Stopwatch

IN_FLIGHT = 50


async def measure(*, base_url: str, count: int) -> dict[str, Any]:
    numbers = iter(range(count))
    url = f"{base_url}/2010-04-01/Accounts/AC{0:032}/Messages.json"
    connector = aiohttp.TCPConnector(limit=IN_FLIGHT)
    async with aiohttp.ClientSession(connector=connector, auth=aiohttp.BasicAuth("AC", "local-twilio-token")) as client:

        async def work() -> None:
            for number in numbers:
                form = {"To": f"+1202{number:07}", "From": "+15005550006", "Body": "The baby is here!"}
                async with client.post(url, data=form) as answer:
                    await answer.json()

        watch = Stopwatch()
        await asyncio.gather(*(work() for _ in range(IN_FLIGHT)))
        return watch.read(count)
