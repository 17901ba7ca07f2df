"""While all slots are taken, the API refuses what it cannot answer in time, and stays reachable for those who must look at it.

Requests are held just before their commit, so a slot is taken for as long as the test wants.
"""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest
from httpx import AsyncClient, Response
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import OPERATOR, async_client, speaking_as
from e2e.support.http_server import served
from e2e.support.waiting import eventually
from messaging.unit_of_work import BEFORE_COMMIT
from tests.labour_parts import api_process, apis, assert_problem, fetch, plan

LABOURS = "/api/v1/labours"
FOREVER = "3600"


class Barrier:
    """Holds every command before its commit until `open` is set."""

    def __init__(self) -> None:
        self.arrived, self.open = 0, asyncio.Event()

    async def hold(self) -> None:
        self.arrived += 1
        await self.open.wait()


@pytest.fixture
def barrier() -> Iterator[Barrier]:
    barrier = Barrier()
    BEFORE_COMMIT.arm(barrier.hold)
    yield barrier
    BEFORE_COMMIT.disarm()


async def plan_as(client: AsyncClient, mother: str, **headers: str) -> Response:
    return await client.post(LABOURS, json={"mother_name": mother}, headers={**speaking_as(mother), **headers})


@asynccontextmanager
async def saturated(client: AsyncClient, barrier: Barrier, slots: int) -> AsyncIterator[None]:
    """All slots are taken within the block. The requests that take them succeed after it."""
    held = [asyncio.create_task(plan_as(client, f"held-{number}")) for number in range(slots)]

    async def arrived() -> int:
        return barrier.arrived

    await eventually(arrived, lambda count: count == slots, what="every slot is taken")
    yield
    barrier.open.set()
    assert [answer.status_code for answer in await asyncio.gather(*held)] == [201] * slots


async def mothers(engine: AsyncEngine) -> list[str]:
    return await fetch(engine, "SELECT mother_id FROM labour ORDER BY mother_id")


async def test_a_saturated_process_refuses_at_once_is_ready_and_serves_operators(
    labour_url: str, labour_engine: AsyncEngine, barrier: Barrier
) -> None:
    key, page = {"Idempotency-Key": "one-tap"}, "https://app.example"
    process = apis(labour_url, HTTP_CONCURRENCY="3", HTTP_QUEUE="0", CORS_ORIGINS=page)
    async with (
        served(process.public) as url,
        served(process.operators) as operators_url,
        async_client(url) as client,
        async_client(operators_url, OPERATOR) as operator,
    ):
        async with saturated(client, barrier, 3):
            refused = await plan_as(client, "ada", Origin=page, **key)
            without_token = await client.get(LABOURS)
            health = [(await client.get(f"/health/{name}")).status_code for name in ("live", "ready")]
            pipeline = await operator.get("/operations/pipeline")

        assert_problem(refused, 503, "busy")
        assert 1 <= int(refused.headers["retry-after"]) <= 3  # s
        assert refused.headers["x-content-type-options"] == "nosniff"
        assert refused.headers["access-control-allow-origin"] == page  # or the page could not read the answer
        assert_problem(without_token, 503, "busy")  # not 401: it was refused before its token was verified
        assert health == [200, 200]
        assert pipeline.status_code == 200
        assert await mothers(labour_engine) == ["held-0", "held-1", "held-2"]

        retried, repeated = await plan_as(client, "ada", **key), await plan_as(client, "ada", **key)

        assert (retried.status_code, repeated.json()) == (201, retried.json())
        assert repeated.headers["idempotency-replayed"] == "true"
        assert await mothers(labour_engine) == ["ada", "held-0", "held-1", "held-2"]


async def test_one_request_waits_for_a_slot_and_the_next_is_refused_because_the_queue_is_full(
    labour_url: str, barrier: Barrier
) -> None:
    async with api_process(labour_url, HTTP_CONCURRENCY="1", HTTP_QUEUE="1", HTTP_QUEUE_SECONDS=FOREVER) as client:
        async with saturated(client, barrier, 1):
            two = [asyncio.create_task(plan_as(client, mother)) for mother in ("ada", "bea")]
            done, [waits] = await asyncio.wait(two, return_when=asyncio.FIRST_COMPLETED)
            [refused] = [one.result() for one in done]

        assert_problem(refused, 503, "busy")
        assert (await waits).status_code == 201


async def test_a_request_that_has_waited_too_long_is_refused(labour_url: str, barrier: Barrier) -> None:
    limits = {"HTTP_CONCURRENCY": "1", "HTTP_QUEUE": "10", "HTTP_QUEUE_SECONDS": "0.01"}
    async with api_process(labour_url, **limits) as client, saturated(client, barrier, 1):
        assert_problem(await plan_as(client, "ada"), 503, "busy")


async def test_an_open_stream_takes_no_slot(labour_url: str) -> None:
    async with api_process(labour_url, HTTP_CONCURRENCY="1", HTTP_QUEUE="0") as client:
        labour = await plan(client)
        async with client.stream("GET", f"{labour}/events", timeout=60) as stream:
            assert stream.status_code == 200

            assert (await client.put(f"{labour}/begin")).status_code == 200


async def test_a_request_that_fails_gives_its_slot_back(labour_url: str, barrier: Barrier) -> None:
    async def fail() -> None:
        raise RuntimeError("on purpose")

    async with api_process(labour_url, HTTP_CONCURRENCY="1", HTTP_QUEUE="0") as client:
        BEFORE_COMMIT.arm(fail)
        assert_problem(await plan_as(client, "ada"), 500, "internal-error")
        BEFORE_COMMIT.disarm()

        assert (await plan_as(client, "ada")).status_code == 201
