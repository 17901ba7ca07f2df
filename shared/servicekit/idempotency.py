"""Idempotency keys: a retried request has one effect and gets the same answer.

The answer is stored in the transaction of the effect, so there is never one without the other. Follows the IETF draft for the
`Idempotency-Key` header: the same key with the same request replays the answer. A key with another request is refused, and so is
a second request while the first is still being handled. Failed requests had no effect; they are not stored and may be retried
with the same key.

A new key costs no query: inserting the answer fails if the key has one already. So a repeated request does its work a second
time, is rolled back, and gets the first answer.
"""

import hashlib
import itertools
from dataclasses import dataclass
from datetime import timedelta

import asyncpg
import msgspec

from messaging.unit_of_work import UnitOfWork

KEEP = timedelta(hours=24)


class KeyReused(Exception):
    """This key belongs to another request."""


@dataclass(frozen=True, slots=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


_FIND = """
    SELECT fingerprint, status, headers, body FROM idempotency_key
    WHERE scope = $1 AND key = $2 AND expires_at > clock_timestamp()
"""

# A key that exists violates the primary key, and the whole transaction is rolled back.
_STORE = """
    INSERT INTO idempotency_key (scope, key, fingerprint, status, headers, body, expires_at)
    VALUES ($1, $2, $3, $4, $5, $6, clock_timestamp() + $7::interval)
"""
_PRIMARY_KEY = "idempotency_key_pkey"

# Every tenth new key deletes up to 100 expired ones, so that the table stays as large as a day's keys without a clean-up job.
_FORGET_EXPIRED = """
    DELETE FROM idempotency_key WHERE (scope, key) IN (
        SELECT scope, key FROM idempotency_key WHERE expires_at < clock_timestamp() LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
_FORGET = "DELETE FROM idempotency_key WHERE scope = $1 AND key = $2 AND expires_at <= clock_timestamp()"
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

    @property
    def lock(self) -> int:
        """The advisory lock that a request holds while it is handled."""
        return int.from_bytes(hashlib.sha256(f"idempotency:{self.scope}:{self.key}".encode()).digest()[:8], signed=True)


async def find(connection: asyncpg.Connection, key: Key) -> Answer | None:
    """The stored answer of a key; None if there is none, or if it has expired. Deletes an expired one. Raises `KeyReused`."""
    row = await connection.fetchrow(_FIND, key.scope, key.key)
    if row is None:
        await connection.execute(_FORGET, key.scope, key.key)
        return None
    if row["fingerprint"] != key.fingerprint:
        raise KeyReused
    return Answer(row["status"], row["headers"], row["body"])


def store(uow: UnitOfWork, key: Key, answer: Answer) -> None:
    """Store the answer with the commit, which fails with an error that `is_taken` recognises if the key has one."""
    headers = msgspec.json.encode(answer.headers).decode()
    uow.at_commit(_STORE, key.scope, key.key, key.fingerprint, answer.status, headers, answer.body, KEEP)
    if next(_stored) % 10 == 0:
        uow.at_commit(_FORGET_EXPIRED)  # skips what is locked: two requests cannot deadlock


def is_taken(error: asyncpg.IntegrityConstraintViolationError) -> bool:
    return error.constraint_name == _PRIMARY_KEY
