"""Idempotency keys: a retried request has one effect and gets the same answer.

The answer is stored in the transaction of the effect, so there is never one without the other. Follows the IETF draft for the
`Idempotency-Key` header: the same key with the same request replays the answer, with another request it is refused, and while
the first is still being handled so is the second. Failed requests had no effect; they are not stored and may be
retried with the same key.
"""

import hashlib
import json
from dataclasses import dataclass
from datetime import timedelta

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

KEEP = timedelta(hours=24)


class KeyInFlight(Exception):
    """The first request with this key has not been answered yet."""


class KeyReused(Exception):
    """This key belongs to another request."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


_TRY_LOCK = text("SELECT pg_try_advisory_xact_lock(:key)")

_FIND = text("""
    SELECT fingerprint, status, headers, body FROM idempotency_key
    WHERE scope = :scope AND key = :key AND expires_at > clock_timestamp()
""")

_STORE = text("""
    INSERT INTO idempotency_key (scope, key, fingerprint, status, headers, body, expires_at)
    VALUES (:scope, :key, :fingerprint, :status, CAST(:headers AS jsonb), :body, clock_timestamp() + :keep)
    ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
        headers = excluded.headers, body = excluded.body, expires_at = excluded.expires_at
""")

# Deletes a few expired keys with every new one, so that the table stays as large as a day's keys without a clean-up job.
_FORGET_EXPIRED = text("""
    DELETE FROM idempotency_key WHERE (scope, key) IN (
        SELECT scope, key FROM idempotency_key WHERE expires_at < clock_timestamp() LIMIT 10 FOR UPDATE SKIP LOCKED)
""")


@dataclass(frozen=True, slots=True)
class Key:
    """`scope` is the owner of the key, since two callers may choose the same one. `request` identifies the request."""

    scope: str
    key: str
    request: bytes

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(self.request).digest()


async def find(session: AsyncSession, key: Key) -> Answer | None:
    """The stored answer, or None for a new key. The lock lasts as long as the caller's transaction."""
    lock = hashlib.sha256(f"idempotency:{key.scope}:{key.key}".encode()).digest()[:8]
    if not (await session.execute(_TRY_LOCK, {"key": int.from_bytes(lock, signed=True)})).scalar_one():
        raise KeyInFlight
    row = (await session.execute(_FIND, {"scope": key.scope, "key": key.key})).one_or_none()
    if row is None:
        return None
    if row.fingerprint != key.fingerprint:
        raise KeyReused
    return Answer(row.status, row.headers, row.body)


async def store(session: AsyncSession, key: Key, answer: Answer) -> None:
    await session.execute(
        _STORE,
        {
            "scope": key.scope,
            "key": key.key,
            "fingerprint": key.fingerprint,
            "status": answer.status,
            "headers": json.dumps(answer.headers),
            "body": answer.body,
            "keep": KEEP,
        },
    )
    await session.execute(_FORGET_EXPIRED)  # after our own, and skipping what is locked: two requests cannot deadlock
