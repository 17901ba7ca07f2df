"""Helpers that several tests of the Labour service use."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
from httpx import AsyncClient
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import LabourPlanned
from e2e.support.api import PATIENT, async_client, speaking_as
from e2e.support.http_server import served
from labour.app import build
from labour.domain.contraction import Contraction
from labour.domain.labour import Labour
from labour.settings import ApiSettings
from servicekit.http.web import Apis

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
GRACE = {"name": "Grace", "phone": "+1 (202) 555-0123"}


@asynccontextmanager
async def api_process(database_url: str, **variables: str) -> AsyncIterator[AsyncClient]:
    """One more process of the API on a database, with a client that speaks as Ada."""
    async with served(apis(database_url, **variables).public) as url, async_client(url, speaking_as("ada")) as client:
        yield client


def apis(database_url: str, **variables: str) -> Apis:
    local = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": database_url, **PATIENT}
    return build(ApiSettings.load({**local, **variables}))


async def plan(client: AsyncClient, mother_name: str = "Ada") -> str:
    answer = await client.post("/api/v1/labours", json={"mother_name": mother_name})
    assert answer.status_code == 201, answer.text
    assert answer.headers["location"] == f"/api/v1/labours/{answer.json()['id']}"
    return f"/api/v1/labours/{answer.json()['id']}"


async def execute(engine: AsyncEngine, statement: str) -> None:
    async with engine.begin() as connection:
        await connection.execute(text(statement))


async def fetch(engine: AsyncEngine, query: str) -> list[Any]:
    """Rows, or values if the query has one column."""
    async with engine.connect() as connection:
        rows = (await connection.execute(text(query))).all()
    return [row[0] if len(row) == 1 else row for row in rows]


async def outbox_types(engine: AsyncEngine) -> list[str]:
    """The types of the events in the outbox, in order, without `labour.planned`."""
    return [one for one in await fetch(engine, "SELECT topic FROM outbox ORDER BY position") if one != "labour.planned"]


def assert_problem(answer: httpx.Response, status: int, name: str) -> dict[str, Any]:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"].startswith("application/problem+json")
    problem: dict[str, Any] = answer.json()
    assert problem["type"] == f"urn:fernlabour:problem:{name}"
    assert problem["status"] == status
    assert problem["detail"]
    return problem


def message_facts(**known: Any) -> dict[str, Any]:
    """The fields that the status events of one message share."""
    ids = {name: uuid7() for name in ("labour_id", "notification_id", "cause_id", "person_id")}
    return {**ids, "cause_type": "labour.begun", "channel": "sms", **known}


def planned(at: datetime = NOW) -> Labour:
    return Labour(mother_id="ada", mother_name="Ada", at=at)


def events_of(labour: Labour) -> list[Any]:
    """The recorded events, without `labour.planned`."""
    return [recorded.event for recorded in labour.collect() if not isinstance(recorded.event, LabourPlanned)]


def a_contraction(start: datetime, length: timedelta | None, intensity: int = 5) -> Contraction:
    return Contraction(start) if length is None else Contraction(start, start + length, intensity)
