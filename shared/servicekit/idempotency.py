"""Idempotency keys: a retried request has one effect and gets the same answer.

The answer is stored in the transaction of the effect, so there is never one without the other. Follows the IETF draft for the
`Idempotency-Key` header: the same key with the same request replays the answer, with another request it is refused, and while
the first is still being handled so is the second. Failed requests had no effect; they are not stored and may be
retried with the same key.
"""

import hashlib
import itertools
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import msgspec

KEEP = timedelta(hours=24)


class KeyInFlight(Exception):
    """The first request with this key has not been answered yet."""


class KeyReused(Exception):
    """This key belongs to another request."""


class KeyTaken(Exception):
    """Another request has stored its answer under this key after we looked. Roll back and look again."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


# Lock and look in one statement. Its snapshot is older than the lock: the answer of a request that ended in between is missed
# here, and found by `_STORE`.
_LOCK_AND_FIND = """
    SELECT pg_try_advisory_xact_lock($1) AS locked, fingerprint, status, headers, body
    FROM (SELECT) AS always
    LEFT JOIN idempotency_key ON scope = $2 AND key = $3 AND expires_at > clock_timestamp()
"""

# Replaces an expired answer, and no other.
_STORE = """
    INSERT INTO idempotency_key AS stored (scope, key, fingerprint, status, headers, body, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::interval)
    ON CONFLICT (scope, key) DO UPDATE SET fingerprint = excluded.fingerprint, status = excluded.status,
        headers = excluded.headers, body = excluded.body, expires_at = excluded.expires_at
    WHERE stored.expires_at <= clock_timestamp()
"""

# Deletes ten expired keys for every new one, a hundred at a time, so that the table stays as large as a day's keys without a
# clean-up job.
_FORGET_EXPIRED = """
    DELETE FROM idempotency_key WHERE (scope, key) IN (
        SELECT scope, key FROM idempotency_key WHERE expires_at < clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
_stored = itertools.count()


@dataclass(frozen=True, slots=True)
class Key:
    """`scope` is the owner of the key, since two callers may choose the same one. `request` identifies the request."""

    scope: str
    key: str
    request: bytes

    @property
    def fingerprint(self) -> bytes:
        return hashlib.sha256(self.request).digest()


async def find(connection: asyncpg.Connection, key: Key) -> Answer | None:
    """The stored answer, or None for a new key. The lock lasts as long as the caller's transaction."""
    lock = hashlib.sha256(f"idempotency:{key.scope}:{key.key}".encode()).digest()[:8]
    row = await connection.fetchrow(_LOCK_AND_FIND, int.from_bytes(lock, signed=True), key.scope, key.key)
    if row is None or not row["locked"]:
        raise KeyInFlight
    if row["fingerprint"] is None:
        return None
    if row["fingerprint"] != key.fingerprint:
        raise KeyReused
    return Answer(row["status"], row["headers"], row["body"])


async def store(connection: asyncpg.Connection, key: Key, answer: Answer) -> None:
    headers = msgspec.json.encode(answer.headers).decode()
    done = await connection.execute(
        _STORE, key.scope, key.key, key.fingerprint, answer.status, headers, answer.body, KEEP
    )
    if done != "INSERT 0 1":
        raise KeyTaken
    if next(_stored) % 10 == 0:  # after our own, and skipping what is locked: two requests cannot deadlock
        await connection.execute(_FORGET_EXPIRED)
