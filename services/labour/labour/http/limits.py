"""The limits of the API: how many changes and reads one caller may request in a minute, and how many live streams may be open.
Every route that is limited needs a token.
"""

import math
from collections import Counter

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import ASGIApp, Guard, Middleware, Receive, Scope, Send

from labour.http.auth import Connection, Tokens
from servicekit.http.problems import Problem, busy
from servicekit.http.rate_limit import RateLimit

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})

STREAMS_OF_A_CALLER, STREAMS = 20, 1000  # open at a time in one process


def limit_requests(changes: RateLimit, reads: RateLimit, tokens: Tokens) -> Guard:
    """A guard that counts the requests of each caller. It runs before the body is read, so a refused request costs little.

    Changes and reads are counted apart. A request without a valid token is refused first, and not counted: otherwise callers
    without a token would write rows, and all callers behind one proxy would share one. Admission control bounds their number.
    """

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        who = f"caller:{(await tokens.caller(connection)).id}"
        if connection.scope.get("method") in UNSAFE:
            _use(changes, who, "changes")
        else:
            _use(reads, f"reads of {who}", "reads")

    return guard


def _use(limit: RateLimit, who: str, what: str) -> None:
    used = limit.use(who)
    if not used.allowed:
        wait = max(1, math.ceil(used.ends_in.total_seconds()))
        raise Problem(
            429,
            "rate-limited",
            f"You have sent too many {what} within a minute. Try again in {wait} s.",
            {"Retry-After": str(wait), "RateLimit-Limit": str(limit.limit), "RateLimit-Remaining": str(used.remaining)},
        )


def limit_streams(tokens: Tokens) -> Middleware:
    """A middleware that bounds the open live streams. A stream counts until either side closes it."""
    streams = Counter[str]()

    def middleware(app: ASGIApp) -> ASGIApp:
        async def limited(scope: Scope, receive: Receive, send: Send) -> None:
            caller = await tokens.caller(ASGIConnection(scope))
            if streams[caller.id] >= STREAMS_OF_A_CALLER:
                raise Problem(
                    429,
                    "too-many-streams",
                    f"You have {STREAMS_OF_A_CALLER} live streams open. Close one, and try again.",
                    {"Retry-After": "1"},
                )
            if streams.total() >= STREAMS:
                raise busy(5)
            streams[caller.id] += 1
            try:
                await app(scope, receive, send)
            finally:
                streams[caller.id] -= 1
                if not streams[caller.id]:
                    del streams[caller.id]

        return limited

    return middleware
