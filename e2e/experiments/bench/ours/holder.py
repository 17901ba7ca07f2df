"""Holds transactions open until it is told to end them."""

from typing import Any

import asyncpg

from e2e.experiments.bench.ours.relay import old_transaction

_held = list[asyncpg.Connection]()


async def measure(*, urls: list[str]) -> dict[str, Any]:
    """Hold a transaction open in each of these databases, and no others any more."""
    while _held:
        await _held.pop().close()
    _held.extend([await old_transaction(url) for url in urls])
    return {"held": len(_held)}
