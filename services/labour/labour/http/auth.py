"""Authentication: bearer tokens (JWT), verified once a request.

Locally, tokens are signed with a shared secret (`fern token`). Everywhere else they are RS256, and their keys come from the
identity provider's JWKS address. A token identifies the caller (`sub`); `labour.application.access` decides what they may do.
"""

import time
from dataclasses import dataclass
from typing import Any

import jwt
from litestar.connection import ASGIConnection

from labour.settings import ApiSettings
from servicekit.http.problems import Problem
from servicekit.http.security_log import identify
from servicekit.http.signing_keys import ALGORITHM, KeysUnavailable, SigningKeys
from servicekit.text import is_line

Connection = ASGIConnection[Any, Any, Any, Any]

ISSUED_SECONDS = 12 * 60 * 60
MAX_SUBJECT = 200  # characters; a longer one cannot be cut, or two callers could become one


@dataclass(frozen=True, slots=True)
class Caller:
    """`expires_at` is when the token ends, in seconds since 1970."""

    id: str
    expires_at: float


class Tokens:
    def __init__(self, settings: ApiSettings) -> None:
        self._settings = settings
        self._keys = SigningKeys(settings.jwks_url) if settings.jwks_url else None

    @property
    def is_local(self) -> bool:
        """Tokens are verified with the shared secret of local mode."""
        return self._settings.local and self._keys is None

    def issue(self, subject: str) -> str:
        """Issue a token that is valid for twelve hours. In local mode only: elsewhere the identity provider issues tokens."""
        if not self.is_local:
            raise RuntimeError("This service issues no tokens: get one from the identity provider.")
        claims = {"sub": subject, "aud": self._settings.token_audience, "exp": int(time.time()) + ISSUED_SECONDS}
        if self._settings.token_issuer:
            claims["iss"] = self._settings.token_issuer
        return jwt.encode(claims, self._settings.token_secret, algorithm="HS256")

    async def authenticate(self, connection: Connection) -> Caller | Problem:
        """The caller, or the problem with the token. It is kept on the connection, so the token is verified once although the
        guard and the route both need it.
        """
        state = connection.scope["state"]
        if "authentication" not in state:
            state["authentication"] = await self._authenticate(connection.headers.get("authorization", ""))
            if isinstance(state["authentication"], Caller):
                identify(connection.scope, state["authentication"].id)
        outcome: Caller | Problem = state["authentication"]
        return outcome

    async def caller(self, connection: Connection) -> Caller:
        """The caller of a request. Raises the problem if the token is missing or not valid."""
        outcome = await self.authenticate(connection)
        if isinstance(outcome, Problem):
            raise outcome
        return outcome

    async def _authenticate(self, header: str) -> Caller | Problem:
        scheme, _, token = header.strip().partition(" ")
        if scheme.lower() != "bearer" or not token:
            return _unauthorized(
                "Send a token as `Authorization: Bearer <token>`. Locally, `fern token NAME` issues one."
            )
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
        except KeysUnavailable:
            return Problem(
                503,
                "unavailable",
                "The keys that verify tokens cannot be fetched at the moment. Try again.",
                {"Retry-After": "1"},
            )
        except jwt.PyJWTError as error:
            return _unauthorized(f"The token is not valid ({type(error).__name__}). Get a new one.")
        subject = str(claims["sub"])
        if not 1 <= len(subject) <= MAX_SUBJECT or not is_line(subject):
            return _unauthorized(
                f"The token's subject (sub) must be one line of 1 to {MAX_SUBJECT} characters, without control characters. "
                "Get a new one."
            )
        return Caller(subject, float(claims["exp"]))

    async def _key(self, token: str) -> tuple[Any, str]:
        if self._keys is None:
            return self._settings.token_secret, "HS256"
        return (await self._keys.key(token)).key, ALGORITHM


def _unauthorized(detail: str) -> Problem:
    return Problem(401, "not-authorized", detail, {"WWW-Authenticate": 'Bearer realm="fernlabour"'})
