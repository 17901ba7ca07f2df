"""A rate limit per caller, for all processes of a service together.

Each process counts in memory, so that a request costs no query, and adds what it has counted to a row per caller ten times a
second, in one statement for all callers. From the answer it knows what the other processes have counted. So a caller who asks
several processes at once may exceed the limit by what they let through within a tenth of a second.

Windows are fixed: the first request opens one, and the first request after its end opens another. Across the border between two
windows a caller may make twice the limit of requests. That protects the service well enough.
"""

import asyncio
import time
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy.ext.asyncio import AsyncEngine

from messaging.database import describe, driver_connection, is_transient
from messaging.progress import Outage

MINUTE = timedelta(minutes=1)
SHARE_INTERVAL = 0.1  # seconds

# The callers are sorted, so that two processes that share counts of the same ones cannot deadlock.
_SHARE = """
    INSERT INTO rate_limit (who, count, ends_at)
    SELECT who, count, now() + $3::interval FROM unnest($1::text[], $2::integer[]) AS counted (who, count) ORDER BY who
    ON CONFLICT (who) DO UPDATE SET
        count = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.count + excluded.count ELSE excluded.count END,
        ends_at = CASE WHEN rate_limit.ends_at > now() THEN rate_limit.ends_at ELSE excluded.ends_at END
    RETURNING who, count, extract(epoch FROM ends_at - now())::float AS ends_in
"""

# Deletes windows that have ended, so that the table stays as large as a minute's callers.
_FORGET_ENDED = """
    DELETE FROM rate_limit WHERE who IN (
        SELECT who FROM rate_limit WHERE ends_at < now() LIMIT 1000 FOR UPDATE SKIP LOCKED)
"""


@dataclass(slots=True)
class _Window:
    """`shared` requests were counted by all processes, as far as this one knows; `own` are not shared yet."""

    ends_at: float
    shared: int = 0
    own: int = 0


@dataclass(frozen=True, slots=True)
class Used:
    """`remaining` requests are left in the window that ends in `ends_in`. `allowed` is False once the limit is used up."""

    allowed: bool
    remaining: int
    ends_in: timedelta


class RateLimit:
    def __init__(self, engine: AsyncEngine, *, limit: int, window: timedelta = MINUTE) -> None:
        self.limit, self._engine, self._length = limit, engine, window
        self._windows = dict[str, _Window]()
        self._unshared = dict[str, _Window]()  # those with own requests, so that a round costs nothing for the others
        self._forgets_at = 0.0
        self._counted = asyncio.Event()

    def use(self, who: str) -> Used:
        """Count one request. It counts as well if it is refused or rolled back later."""
        now = time.monotonic()
        window = self._windows.get(who)
        if window is None or window.ends_at <= now:
            window = self._windows[who] = _Window(now + self._length.total_seconds())
        window.own += 1
        self._unshared[who] = window
        self._counted.set()
        used = window.shared + window.own
        return Used(used <= self.limit, max(0, self.limit - used), timedelta(seconds=window.ends_at - now))

    async def run(self) -> None:
        """Share counts until cancelled. While the database is unavailable, the process goes on counting alone."""
        outage, pause = Outage("shared rate limits", base=SHARE_INTERVAL), SHARE_INTERVAL
        while True:
            await self._counted.wait()
            await asyncio.sleep(pause)  # first, so that the request that was counted need not compete with it
            self._counted.clear()
            try:
                await self.share()
                outage.over()
                pause = SHARE_INTERVAL
            except Exception as error:
                if not is_transient(error):
                    raise
                pause = outage.failed(describe(error))
                self._counted.set()

    async def share(self) -> None:
        now = time.monotonic()
        self._forget_ended(now)
        counted = {who: (window, window.own) for who, window in self._unshared.items() if window.ends_at > now}
        async with driver_connection(self._engine) as connection:
            rows = await connection.fetch(_SHARE, list(counted), [own for _, own in counted.values()], self._length)
            await connection.execute(_FORGET_ENDED)
        for who, count, ends_in in rows:
            window, own = counted[who]  # its own object: the caller may have opened another window meanwhile
            window.shared, window.own, window.ends_at = count, window.own - own, now + ends_in
            if not window.own and self._unshared.get(who) is window:
                del self._unshared[who]

    def _forget_ended(self, now: float) -> None:
        """Once a second, because it looks at every caller of the last window."""
        if now < self._forgets_at:
            return
        self._forgets_at = now + 1.0
        self._windows = {who: window for who, window in self._windows.items() if window.ends_at > now}
        self._unshared = {who: window for who, window in self._unshared.items() if window.ends_at > now}
