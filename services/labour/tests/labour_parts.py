"""What several tests of the Labour service need."""

from datetime import datetime, timedelta
from typing import Any

import httpx
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine

from labour.domain.contraction import Contraction

GRACE = {"name": "Grace", "phone": "+1 (202) 555-0123"}


async def plan(client: httpx.AsyncClient, mother_name: str = "Ada") -> str:
    answer = await client.post("/api/v1/labours", json={"mother_name": mother_name})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/v1/labours/{answer.json()['id']}"
    return f"/api/v1/labours/{answer.json()['id']}"


async def outbox_types(engine: AsyncEngine) -> list[str]:
    """What happened after the planning."""
    async with engine.connect() as connection:
        types = (await connection.execute(text("SELECT topic FROM outbox ORDER BY position"))).scalars()
        return [one for one in types if one != "labour.planned"]


def assert_problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"urn:fernlabour:problem:{name}"
    assert problem["status"] == status
    assert problem["detail"]
    return problem


def a_contraction(start: datetime, length: timedelta | None, intensity: int = 5) -> Contraction:
    contraction = Contraction(started_at=start)
    if length is not None:
        contraction.ended_at, contraction.intensity = start + length, intensity
    return contraction
