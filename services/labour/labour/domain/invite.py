"""Invites. The holder of an invite's token may request a subscription to its labour."""

import hashlib
from datetime import datetime
from uuid import UUID

from uuid_utils.compat import uuid7

VALID_INVITE_LIMIT = 20  # of a labour, at a time
INVITE_LIMIT = 100  # of a labour, with those that are revoked or expired


class Invite:
    """The invite has only a digest of its token. The token itself is stored for a day if the invite was created with an
    `Idempotency-Key`: in the answer that a repeated request must get again.
    """

    def __init__(self, *, token: str, expires_at: datetime, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.token_hash = hash_token(token)
        self.created_at, self.expires_at = at, expires_at
        self.revoked_at: datetime | None = None

    def admits(self, token: str, now: datetime) -> bool:
        return self.token_hash == hash_token(token) and self.is_valid(now)

    def is_valid(self, now: datetime) -> bool:
        return self.revoked_at is None and now < self.expires_at


def hash_token(token: str) -> bytes:
    """Tokens are long and random, so a plain digest is enough."""
    return hashlib.sha256(token.encode()).digest()
