"""Who is calling: bearer tokens (JWT).

Local runs sign their own with a shared secret (`fern token`). Everywhere else tokens are RS256, and their keys come from the
identity provider's JWKS address. A token says who somebody is (`sub`); what they may do is decided by the labour.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from litestar import Request
from litestar.di import NamedDependency

from labour.settings import Settings
from servicekit.problems import Problem


@dataclass(frozen=True, slots=True)
class Caller:
    id: str


class Tokens:
    """Keys are fetched once and kept; an unknown key id fetches them again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = jwt.PyJWKClient(settings.jwks_url, cache_keys=True, timeout=5) if settings.jwks_url else None

    async def caller(self, headers: Mapping[str, str]) -> Caller:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized("Say who you are: Authorization: Bearer <token>. Locally, `fern token NAME` makes one.")
        return await self._verify(token.strip())

    async def _verify(self, token: str) -> Caller:
        try:
            key, algorithm = await self._key(token)
            claims = jwt.decode(
                token,
                key,
                algorithms=[algorithm],
                audience=self._settings.token_audience,
                issuer=self._settings.token_issuer or None,
                options={"require": ["exp", "sub"]},
            )
        except jwt.PyJWKClientConnectionError:
            raise Problem(503, "unavailable", "The keys for tokens cannot be fetched just now; try again.") from None
        except jwt.PyJWTError as error:
            raise _unauthorized(f"This token is not good: {type(error).__name__}.") from None
        if not claims["sub"]:
            raise _unauthorized("This token does not say who you are.")
        return Caller(str(claims["sub"])[:200])

    async def _key(self, token: str) -> tuple[Any, str]:
        if self._keys is None:
            return self._settings.token_secret, "HS256"
        return (await asyncio.to_thread(self._keys.get_signing_key_from_jwt, token)).key, "RS256"


async def provide_caller(request: Request[Any, Any, Any], tokens: NamedDependency[Tokens]) -> Caller:
    return await tokens.caller(request.headers)


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "not-authorized", detail, {"WWW-Authenticate": 'Bearer realm="fernlabour"'})
