"""Live streams are bounded: for each caller, and for each process."""

from contextlib import AsyncExitStack

import pytest
from httpx import AsyncClient, Response

from e2e.support.api import speaking_as
from e2e.support.waiting import eventually
from labour.http import limits
from tests.labour_parts import assert_problem, plan


async def opened(stack: AsyncExitStack, client: AsyncClient, labour: str, who: str = "ada") -> Response:
    answer = await stack.enter_async_context(client.stream("GET", f"{labour}/events", headers=speaking_as(who)))
    if answer.is_error:
        await answer.aread()
    return answer


async def plan_as_eve(client: AsyncClient) -> str:
    answer = await client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=speaking_as("eve"))
    return answer.headers["location"]


async def test_a_caller_has_so_many_streams_and_another_one_after_closing_one(labour_client: AsyncClient) -> None:
    labour, eves = await plan(labour_client), await plan_as_eve(labour_client)

    async with AsyncExitStack() as stack:
        streams = [await opened(stack, labour_client, labour) for _ in range(limits.STREAMS_OF_A_CALLER)]
        assert {answer.status_code for answer in streams} == {200}
        problem = assert_problem(await opened(stack, labour_client, labour), 429, "too-many-streams")
        assert "Close one" in problem["detail"]
        assert (await opened(stack, labour_client, eves, "eve")).status_code == 200

        await streams[0].aclose()

        await eventually(lambda: opened(stack, labour_client, labour), lambda answer: answer.status_code == 200)


async def test_a_process_has_so_many_streams_and_answers_everything_else(
    labour_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS", 1)
    labour, eves = await plan(labour_client), await plan_as_eve(labour_client)

    async with AsyncExitStack() as stack:
        assert (await opened(stack, labour_client, labour)).status_code == 200
        refused = await opened(stack, labour_client, eves, "eve")

        assert_problem(refused, 503, "busy")
        assert refused.headers["retry-after"] == "5"
        assert (await labour_client.get(labour)).status_code == 200


async def test_a_stream_that_is_refused_takes_no_place(
    labour_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(limits, "STREAMS", 1)
    labour = await plan(labour_client)

    async with AsyncExitStack() as stack:
        assert_problem(await opened(stack, labour_client, labour, "eve"), 404, "no-such-labour")
        unknown = await labour_client.get(f"{labour}/events", headers={"Authorization": ""})
        assert_problem(unknown, 401, "not-authorized")
        assert (await opened(stack, labour_client, labour)).status_code == 200
