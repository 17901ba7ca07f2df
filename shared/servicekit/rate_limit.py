"""A rate limit per caller, counted in PostgreSQL, so that it holds across all processes of a service.

Windows are fixed: the first request opens one, and the first request after its end opens another. Across the border between two
windows a caller may therefore make twice the limit of requests. That protects the service well enough, and costs one statement
and one row per caller.
"""

import itertools
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from messaging.database import driver_connection

MINUTE = timedelta(minutes=1)

# The row lock serialises concurrent requests of a caller, so that no two of them see the same count.
_COUNT = """
    INSERT INTO rate_limit (who, count, ends_at) VALUES ($1, 1, now() + $2::interval)
    ON CONFLICT (who) DO UPDATE SET
        count = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.count + 1 ELSE 1 END,
        ends_at = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.ends_at ELSE excluded.ends_at END
    RETURNING count AS used, ends_at - now() AS ends_in
"""

# Deletes ten ended windows for every new one, a hundred at a time, so that the table stays as large as a minute's callers. It
# runs after the count and skips locked rows, so that two requests cannot deadlock.
_FORGET_ENDED = """
    DELETE FROM rate_limit WHERE who IN (
        SELECT who FROM rate_limit WHERE ends_at < now() LIMIT 100 FOR UPDATE SKIP LOCKED)
"""


@dataclass(frozen=True, slots=True)
class Used:
    """`remaining` requests are left in the window that ends in `ends_in`. `allowed` is False once the limit is used up."""

    allowed: bool
    remaining: int
    ends_in: timedelta


class RateLimit:
    def __init__(self, engine: AsyncEngine, *, limit: int, window: timedelta = MINUTE) -> None:
        self.limit, self._engine, self._window = limit, engine, window
        self._windows = itertools.count()

    async def use(self, who: str) -> Used:
        """Count one request, in a transaction of its own: a request that is refused or rolled back later counts as well."""
        async with driver_connection(self._engine) as connection:
            ((used, ends_in),) = await connection.fetch(_COUNT, who, self._window)
            if used == 1 and next(self._windows) % 10 == 0:
                await connection.execute(_FORGET_ENDED)
        return Used(used <= self.limit, max(0, self.limit - used), ends_in)
