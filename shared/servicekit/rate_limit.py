"""A rate limit per caller, counted in PostgreSQL, so that it holds across all processes of a service.

Windows are fixed: the first request opens one, and the first request after its end opens another. Across the border between two
windows a caller may therefore make twice the limit of requests. That protects the service well enough, and costs one statement
and one row per caller.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

MINUTE = timedelta(minutes=1)

# The row lock serialises concurrent requests of a caller, so that no two of them see the same count.
_COUNT = text("""
    INSERT INTO rate_limit (who, count, ends_at) VALUES (:who, 1, now() + :window)
    ON CONFLICT (who) DO UPDATE SET
        count = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.count + 1 ELSE 1 END,
        ends_at = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.ends_at ELSE excluded.ends_at END
    RETURNING count AS used, ends_at - now() AS ends_in
""")

# Deletes a few ended windows with every new one, so that the table stays as large as a minute's callers. It runs after the count
# and skips locked rows, so that two requests cannot deadlock.
_FORGET_ENDED = text("""
    DELETE FROM rate_limit WHERE who IN (
        SELECT who FROM rate_limit WHERE ends_at < now() LIMIT 10 FOR UPDATE SKIP LOCKED)
""")


@dataclass(frozen=True, slots=True)
class Used:
    """`remaining` requests are left in the window that ends in `ends_in`. `allowed` is False once the limit is used up."""

    allowed: bool
    remaining: int
    ends_in: timedelta


class RateLimit:
    def __init__(self, engine: AsyncEngine, *, limit: int, window: timedelta = MINUTE) -> None:
        self.limit, self._engine, self._window = limit, engine, window

    async def use(self, who: str) -> Used:
        """Count one request, in a transaction of its own: a request that is refused or rolled back later counts as well."""
        async with self._engine.begin() as connection:
            row = (await connection.execute(_COUNT, {"who": who, "window": self._window})).one()
            if row.used == 1:
                await connection.execute(_FORGET_ENDED)
        return Used(row.used <= self.limit, max(0, self.limit - row.used), row.ends_in)
