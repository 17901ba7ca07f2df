"""Authentication: bearer tokens (JWT), verified once a request.

Locally, tokens are signed with a shared secret (`fern token`). Everywhere else they are RS256, and their keys come from the
identity provider's JWKS address. A token identifies the caller (`sub`); `labour.application.access` decides what they may do.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import jwt
from litestar import Request
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency

from labour.settings import Settings
from servicekit.problems import Problem

_OUTCOME = "labour.authentication"  # key in the state of a connection


@dataclass(frozen=True, slots=True)
class Caller:
    id: str


class Tokens:
    """Keys are fetched once and kept; an unknown key id fetches them again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = jwt.PyJWKClient(settings.jwks_url, cache_keys=True, timeout=5) if settings.jwks_url else None

    async def caller(self, connection: ASGIConnection[Any, Any, Any, Any]) -> Caller:
        """Raises `Problem`. Keeps the outcome on the connection: the rate limit and the route both ask for it."""
        state = connection.scope["state"]
        if _OUTCOME not in state:
            try:
                state[_OUTCOME] = await self._authenticate(connection.headers)
            except Problem as refused:
                state[_OUTCOME] = refused
        outcome: Caller | Problem = state[_OUTCOME]
        if isinstance(outcome, Problem):
            raise outcome
        return outcome

    async def _authenticate(self, headers: Mapping[str, str]) -> Caller:
        scheme, _, token = headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not token:
            raise _unauthorized(
                "The request has no bearer token. Send Authorization: Bearer <token>; locally, `fern token NAME` issues one."
            )
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
            raise Problem(
                503, "unavailable", "The keys to verify tokens cannot be fetched at the moment. Try again."
            ) from None
        except jwt.PyJWTError as error:
            raise _unauthorized(f"The token is not valid: {type(error).__name__}. Get a new one.") from None
        if not claims["sub"]:
            raise _unauthorized("The token has an empty subject (sub). Get a new one.")
        return Caller(str(claims["sub"])[:200])

    async def _key(self, token: str) -> tuple[Any, str]:
        if self._keys is None:
            return self._settings.token_secret, "HS256"
        return (await asyncio.to_thread(self._keys.get_signing_key_from_jwt, token)).key, "RS256"


async def provide_caller(request: Request[Any, Any, Any], tokens: NamedDependency[Tokens]) -> Caller:
    return await tokens.caller(request)


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "not-authorized", detail, {"WWW-Authenticate": 'Bearer realm="fernlabour"'})
