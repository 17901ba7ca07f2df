"""The public keys that verify tokens, from a JWKS address. Keys expire: one that the provider withdraws is not trusted for long.

FRESH_SECONDS     age of the keys from which a request starts a fetch in the background (300)
TRUSTED_SECONDS   age of the keys from which they verify nothing: requests wait for new ones, or get an error (900)
PAUSE_SECONDS     shortest time between two fetches, whatever tokens arrive (5)

An unknown key id fetches the keys at once, because providers add keys. The pause holds for that as well: tokens with made-up key
ids must not let a stranger flood the provider. While the provider is unavailable the last keys are used until they are no longer
trusted. So a withdrawn key is accepted for at most `TRUSTED_SECONDS`, and an outage that is shorter refuses no request.
"""

import asyncio
import math
from time import monotonic

import jwt
from jwt import PyJWK, PyJWKClient

from messaging.progress import Outage

FRESH_SECONDS, TRUSTED_SECONDS, PAUSE_SECONDS = 300.0, 900.0, 5.0
TIMEOUT_SECONDS = 5.0
ALGORITHM = "RS256"


class KeysUnavailable(Exception):
    """No trusted keys are known, and the provider does not answer with any. The token may be valid."""


class SigningKeys:
    """Use it in one event loop. Requests that need new keys at the same time share one fetch."""

    def __init__(self, url: str) -> None:
        self._client = PyJWKClient(url, cache_keys=False, cache_jwk_set=False, timeout=TIMEOUT_SECONDS)
        self._keys = dict[str, PyJWK]()
        self._fetched_at = self._tried_at = -math.inf
        self._fetching: asyncio.Task[None] | None = None
        self._outage = Outage(f"keys of {url}")

    async def key(self, token: str) -> PyJWK:
        """The key that the token names. Raises `jwt.InvalidTokenError` if there is none, and `KeysUnavailable`."""
        key_id = str(jwt.get_unverified_header(token).get("kid"))
        if key_id not in self._keys or self._age() > TRUSTED_SECONDS:
            if fetching := self._fetch():
                await asyncio.shield(fetching)  # others may wait for the same one
        elif self._age() > FRESH_SECONDS:
            self._fetch()
        if self._age() > TRUSTED_SECONDS:
            raise KeysUnavailable
        if key_id not in self._keys:
            raise jwt.InvalidTokenError("unknown key id")
        return self._keys[key_id]

    def _age(self) -> float:
        return monotonic() - self._fetched_at

    def _fetch(self) -> asyncio.Task[None] | None:
        """The current fetch, or a new one. None if the last one is too recent."""
        if self._fetching is None or self._fetching.done():
            if monotonic() - self._tried_at < PAUSE_SECONDS:
                return None
            self._tried_at = monotonic()
            self._fetching = asyncio.create_task(self._replace_keys())
        return self._fetching

    async def _replace_keys(self) -> None:
        asked_at = monotonic()
        try:
            found = await asyncio.to_thread(self._client.get_signing_keys)
        except (jwt.PyJWTError, OSError, ValueError) as error:
            self._outage.failed(type(error).__name__)
            return
        self._outage.over()
        self._keys = {str(key.key_id): key for key in found if key.algorithm_name == ALGORITHM}
        self._fetched_at = asked_at
