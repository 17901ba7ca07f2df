"""`PUT /labours/{id}/complete` as in the first article: load the labour, change it, add one event, commit.

python -m e2e.experiments.bench.articles.handler PORT URL
"""

import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import uvicorn
from litestar import Litestar, get, put
from litestar.datastructures import State
from litestar.exceptions import ClientException, NotFoundException
from sqlalchemy.ext.asyncio import async_sessionmaker, create_async_engine

from e2e.experiments.bench.articles.tables import DomainEvent, Labour


@put("/labours/{labour_id:uuid}/complete")
async def complete(labour_id: UUID, state: State) -> dict[str, Any]:
    now = datetime.now(UTC)
    async with state.sessions.begin() as session:
        labour = await session.get(Labour, labour_id)
        if labour is None:
            raise NotFoundException
        if labour.completed_at is not None:
            raise ClientException("the labour is already complete")
        labour.phase, labour.completed_at = "complete", now
        data = {"labour_id": str(labour.id), "mother_name": labour.mother_name, "completed_at": now.isoformat()}
        session.add(DomainEvent(aggregate_id=str(labour.id), type="labour.completed", data=data))
    return {"id": labour.id, "mother_name": labour.mother_name, "phase": labour.phase, "completed_at": now}


@get("/ready")
async def ready() -> None: ...


def build(url: str) -> Litestar:
    engine = create_async_engine(url, pool_size=10, max_overflow=0)

    @asynccontextmanager
    async def lifespan(_: Litestar) -> AsyncGenerator[None, None]:
        yield
        await engine.dispose()

    sessions = async_sessionmaker(engine, expire_on_commit=False)
    return Litestar([complete, ready], state=State({"sessions": sessions}), lifespan=[lifespan], openapi_config=None)


if __name__ == "__main__":
    port, url = sys.argv[1:]
    uvicorn.run(build(url), port=int(port), log_level="warning", loop="asyncio", http="h11")  # the stock server
