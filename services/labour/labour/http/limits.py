"""The rate limit: how many changes one caller may request in a minute. Reads are not limited."""

import math

from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from labour.http.auth import Caller, Connection, Tokens
from servicekit.problems import Problem
from servicekit.rate_limit import RateLimit

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})


async def counted_as(connection: Connection, tokens: Tokens) -> str:
    """One count for each caller; requests without a valid token are counted by address."""
    outcome = await tokens.authenticate(connection)
    if isinstance(outcome, Caller):
        return f"caller:{outcome.id}"
    return f"address:{connection.client.host if connection.client else 'unknown'}"


def limit_changes(limit: RateLimit, tokens: Tokens) -> Guard:
    """A guard runs before the body is read, so a refused request costs little."""

    async def guard(connection: Connection, _: BaseRouteHandler) -> None:
        if connection.scope.get("method") not in UNSAFE:
            return
        used = limit.use(await counted_as(connection, tokens))
        if not used.allowed:
            wait = max(1, math.ceil(used.ends_in.total_seconds()))
            raise Problem(
                429,
                "rate-limited",
                f"You have sent too many changes within a minute. Try again in {wait} s.",
                {
                    "Retry-After": str(wait),
                    "RateLimit-Limit": str(limit.limit),
                    "RateLimit-Remaining": str(used.remaining),
                },
            )

    return guard
