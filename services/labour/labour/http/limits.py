"""Who is asking, and how many changes they may ask for in a minute. Reading is free."""

import math
from typing import Any

from litestar.connection import ASGIConnection
from litestar.handlers import BaseRouteHandler
from litestar.types import Guard

from labour.http.auth import Tokens
from servicekit.problems import Problem
from servicekit.rate_limit import RateLimit

UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})

Asking = ASGIConnection[Any, Any, Any, Any]


async def who(asking: Asking, tokens: Tokens) -> str:
    """Whose requests are counted together: one caller's; or, of those who do not say who they are, one address's."""
    try:
        return f"caller:{(await tokens.caller(asking.headers)).id}"
    except Problem:
        return f"address:{asking.client.host if asking.client else 'unknown'}"


def limit_changes(limit: RateLimit, tokens: Tokens) -> Guard:
    """A guard runs before the body is read: refusing is cheap."""

    async def guard(asking: Asking, _: BaseRouteHandler) -> None:
        if asking.scope.get("method") not in UNSAFE:
            return
        used = await limit.use(await who(asking, tokens))
        if not used.allowed:
            wait = max(1, math.ceil(used.ends_in.total_seconds()))
            raise Problem(
                429,
                "rate-limited",
                f"You have changed too much in too short a time; try again in {wait} s.",
                {
                    "Retry-After": str(wait),
                    "RateLimit-Limit": str(limit.limit),
                    "RateLimit-Remaining": str(used.remaining),
                },
            )

    return guard
