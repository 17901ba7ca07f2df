"""How often somebody may do something, counted in PostgreSQL: one limit, however many processes serve.

Windows are fixed: the first request opens one, and when it ends the next request opens another. Across the border between two
windows somebody may therefore do twice as much as in one; for keeping a service up that is good enough, and it costs one
statement and one row per caller.
"""

from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

MINUTE = timedelta(minutes=1)

# The row lock makes concurrent requests count one after the other, so none of them sees the same number.
_COUNT = text("""
    INSERT INTO rate_limit (who, count, ends_at) VALUES (:who, 1, now() + :window)
    ON CONFLICT (who) DO UPDATE SET
        count = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.count + 1 ELSE 1 END,
        ends_at = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.ends_at ELSE excluded.ends_at END
    RETURNING count AS used, ends_at - now() AS ends_in
""")

# A few with every new window: the table stays as large as a minute's callers, and nobody has to sweep it. After the count, and
# never waiting for a row, so that two requests cannot wait for each other.
_FORGET_ENDED = text("""
    DELETE FROM rate_limit WHERE who IN (
        SELECT who FROM rate_limit WHERE ends_at < now() LIMIT 10 FOR UPDATE SKIP LOCKED)
""")


@dataclass(frozen=True, slots=True)
class Used:
    """`remaining` is what the caller has left in the window that ends in `ends_in`. Not `allowed`: it had nothing left."""

    allowed: bool
    remaining: int
    ends_in: timedelta


class RateLimit:
    def __init__(self, engine: AsyncEngine, *, limit: int, window: timedelta = MINUTE) -> None:
        self.limit, self._engine, self._window = limit, engine, window

    async def use(self, who: str) -> Used:
        """Counts one request. In a transaction of its own: what is refused or rolled back later has been tried as well."""
        async with self._engine.begin() as connection:
            row = (await connection.execute(_COUNT, {"who": who, "window": self._window})).one()
            if row.used == 1:
                await connection.execute(_FORGET_ENDED)
        return Used(row.used <= self.limit, max(0, self.limit - row.used), row.ends_in)
