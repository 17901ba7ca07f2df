"""The tokens of push subscriptions: signed like the service's own, but with the emulator's key, which the HTTP port publishes."""

import json
import time
from functools import cached_property
from typing import Any, Final

from fern.pubsub import sql
from fern.pubsub.store import Store

_LIFETIME_SECONDS: Final = 3600
_SECRET: Final = "push-key"  # noqa: S105 (a name)


class Signer:
    def __init__(self, store: Store) -> None:
        """The key is made when it is first needed, and kept, so that receivers may cache the public half across restarts."""
        self.issuer = ""
        """The URL of the HTTP port, known once that is bound."""
        self._store: Final = store
        self._stored: Final = [value for name, value in store.rows("SELECT name, value FROM secret") if name == _SECRET]

    def token(self, email: str, audience: str) -> str:
        import jwt

        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "azp": email,
            "sub": email,
            "email": email,
            "email_verified": True,
            "iat": now,
            "exp": now + _LIFETIME_SECONDS,
        }
        return jwt.encode(claims, self._key, "RS256", {"kid": self._jwk["kid"]})

    def discovery(self) -> dict[str, Any]:
        """What OpenID Connect calls the provider's configuration."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/oauth2/v3/certs",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def jwks(self) -> dict[str, Any]:
        return {"keys": [self._jwk]}

    # Cryptography takes as long to import as the rest takes to start, and few ever push.
    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        if self._stored:
            return serialization.load_pem_private_key(self._stored[0], password=None)
        key = rsa.generate_private_key(65537, 2048)
        pem = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        self._store.submit(sql.put_secret(_SECRET, pem))
        return key

    @cached_property
    def _jwk(self) -> dict[str, Any]:
        from hashlib import sha256

        from jwt.algorithms import RSAAlgorithm

        public: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        return {"kty": "RSA", "n": public["n"], "e": public["e"], "use": "sig", "alg": "RS256"} | {
            "kid": sha256(public["n"].encode()).hexdigest()[:40]
        }
