"""`PUT /labours/{id}/complete` on asyncpg, with our guards in two statements, and without any guard in one.

python -m e2e.experiments.bench.limits.handler PORT URL

The guards: token, rate limit (counted in memory), idempotency key (locked, looked up, stored), who may, version check. The first
statement locks the key, looks it up and loads the labour with its subscribers; the second changes everything.
"""

import hashlib
import json
import sys
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
import jwt
import uvicorn
from litestar import Litestar, Request, Response, get, put
from litestar.datastructures import State
from litestar.exceptions import ClientException, NotAuthorizedException, NotFoundException, TooManyRequestsException
from uuid_utils.compat import uuid7

from fern.settings import TOKEN_SECRET

PER_MINUTE = 1_000_000

_LOAD = """
    SELECT pg_try_advisory_xact_lock($1) AS locked, k.fingerprint, k.status, k.body, l.*, (
        SELECT json_agg(s) FROM subscriber s WHERE s.labour_id = l.id) AS subscribers
    FROM labour l LEFT JOIN idempotency_key k ON k.scope = $3 AND k.key = $4 AND k.expires_at > clock_timestamp()
    WHERE l.id = $2
"""
_COMPLETE = """
    WITH changed AS (
        UPDATE labour SET phase = 'complete', completed_at = $3, version = version + 1
        WHERE id = $1 AND version = $2 RETURNING id),
    recorded AS (
        INSERT INTO event (event_id, topic, ordering_key, attributes, payload, occurred_at)
        SELECT $4, 'labour.completed', CAST(id AS text), CAST($5 AS jsonb), $6, $3 FROM changed RETURNING position),
    waiting AS (INSERT INTO pending SELECT position FROM recorded)
    INSERT INTO idempotency_key SELECT $7, $8, $9, 200, $10, clock_timestamp() + interval '1 day' FROM changed
"""
_UNGUARDED = """
    WITH changed AS (
        UPDATE labour SET phase = 'complete', completed_at = $2, version = version + 1
        WHERE id = $1 AND phase <> 'complete' RETURNING id, mother_name),
    recorded AS (
        INSERT INTO event (event_id, topic, ordering_key, attributes, payload, occurred_at)
        SELECT $3, 'labour.completed', CAST(id AS text), CAST($4 AS jsonb), $5, $2 FROM changed)
    SELECT mother_name FROM changed
"""

_used = Counter[str]()


def _caller(request: Request[Any, Any, Any]) -> str:
    try:
        token = request.headers["authorization"].removeprefix("Bearer ")
        claims = jwt.decode(token, TOKEN_SECRET, ["HS256"], audience="fernlabour", options={"require": ["exp", "sub"]})
    except (KeyError, jwt.PyJWTError):
        raise NotAuthorizedException from None
    return str(claims["sub"])


def _event(labour_id: UUID, now: datetime) -> tuple[UUID, str, str]:
    """The id, the attributes and the data of `labour.completed`, as ours has them."""
    event_id = uuid7()
    attributes = {
        "ce-specversion": "1.0",
        "ce-id": str(event_id),
        "ce-source": "labour",
        "ce-type": "labour.completed",
        "ce-dataschema": "urn:fernlabour:labour.completed:1",
        "ce-subject": str(labour_id),
        "ce-time": now.isoformat(),
        "content-type": "application/json",
    }
    data = {"labour_id": str(labour_id), "roster_version": 2, "mother_name": "Ada", "completed_at": now.isoformat()}
    return event_id, json.dumps(attributes), json.dumps(data)


@put("/guarded/{labour_id:uuid}/complete")
async def guarded(labour_id: UUID, request: Request[Any, Any, Any], state: State) -> Response[bytes]:
    caller, key, now = _caller(request), request.headers["idempotency-key"], datetime.now(UTC)
    _used[caller] += 1
    if _used[caller] > PER_MINUTE:
        raise TooManyRequestsException
    fingerprint = hashlib.sha256(f"PUT {request.url.path}\n".encode() + await request.body()).digest()
    lock = int.from_bytes(hashlib.sha256(f"{caller}:{key}".encode()).digest()[:8], signed=True)
    async with state.pool.acquire() as connection, connection.transaction():
        row = await connection.fetchrow(_LOAD, lock, labour_id, caller, key)
        if row is None or row["mother_id"] != caller:
            raise NotFoundException
        if not row["locked"] or (row["fingerprint"] or fingerprint) != fingerprint:
            raise ClientException("the key is in use")
        if row["body"] is not None:
            return Response(row["body"], status_code=row["status"], media_type="application/json")
        if row["phase"] == "complete":
            raise ClientException("the labour is already complete")
        answer = {
            "id": str(labour_id),
            "mother_name": row["mother_name"],
            "phase": "complete",
            "completed_at": now.isoformat(),
            "version": row["version"] + 1,
            "subscribers": json.loads(row["subscribers"]),
        }
        body = json.dumps(answer).encode()
        arguments = (*_event(labour_id, now), caller, key, fingerprint, body)
        if await connection.execute(_COMPLETE, labour_id, row["version"], now, *arguments) != "INSERT 0 1":
            raise ClientException("the labour was changed")
    return Response(body, media_type="application/json", headers={"ETag": f'"v{row["version"] + 1}"'})


@put("/unguarded/{labour_id:uuid}/complete")
async def unguarded(labour_id: UUID, state: State) -> dict[str, Any]:
    now = datetime.now(UTC)
    async with state.pool.acquire() as connection:
        name = await connection.fetchval(_UNGUARDED, labour_id, now, *_event(labour_id, now))
    if name is None:
        raise NotFoundException
    return {"id": labour_id, "mother_name": name, "phase": "complete", "completed_at": now}


@get("/ready")
async def ready() -> None: ...


def build(url: str) -> Litestar:
    @asynccontextmanager
    async def lifespan(app: Litestar) -> AsyncGenerator[None, None]:
        async with asyncpg.create_pool(url.replace("+asyncpg", ""), min_size=10, max_size=10) as app.state.pool:
            yield

    return Litestar([guarded, unguarded, ready], lifespan=[lifespan], openapi_config=None)


if __name__ == "__main__":
    port, url = sys.argv[1:]
    uvicorn.run(build(url), port=int(port), log_level="warning")
