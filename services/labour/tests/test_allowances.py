"""What an account may use in a day, over all its labours and all processes. Births count and are never refused."""

import asyncio
from typing import Any

import pytest
from httpx import AsyncClient
from sqlalchemy import event
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.pool import ConnectionPoolEntry

from e2e.support.api import speaking_as
from labour.application.access import CommandContext
from labour.application.allowances import Allowances
from labour.application.command_runner import CommandRunner
from labour.application.commands import complete_labour, plan_labour
from labour.application.usage import KEY_LIMIT, Usage
from labour.domain.errors import DayUsedUp
from messaging.unit_of_work import UnitsOfWork
from servicekit.idempotency import Answer, Key
from tests.labour_parts import NOW, api_process, assert_problem, execute, fetch, plan

USED = "SELECT labours, people, segments, keys FROM account_day WHERE account = 'ada'"


def person(number: int) -> dict[str, str]:
    return {"name": f"Person {number}", "phone": f"+1202555010{number}"}


def announcement(text: str) -> dict[str, str]:
    return {"kind": "announcement", "text": text}


def assert_used_up(answer: Any, what: str) -> None:
    assert assert_problem(answer, 429, "daily-limit")["limit_of"] == what
    assert 1 <= int(answer.headers["retry-after"]) <= 24 * 3600


async def test_people_count_over_all_labours_and_processes_also_those_who_were_removed(
    labour_url: str, labour_engine: AsyncEngine
) -> None:
    limit = {"PEOPLE_PER_DAY": "3"}
    async with api_process(labour_url, **limit) as one, api_process(labour_url, **limit) as two:
        first = await plan(one)
        for number, client in enumerate((one, two)):
            added = await client.post(f"{first}/subscribers", json=person(number))
            assert added.status_code == 201, added.text
            await client.delete(f"{first}/subscribers/{added.json()['id']}")
        await one.put(f"{first}/complete")
        second = await plan(two)
        token = (await two.post(f"{second}/invites", json={})).json()["token"]
        for number in (2, 3):
            body, user = {"token": token, **person(number)}, speaking_as(f"user-{number}")
            assert (await one.post("/api/v1/subscriptions", json=body, headers=user)).status_code == 201
        people = [one["id"] for one in (await one.get(second)).json()["subscribers"]]

        assert (await one.put(f"{second}/subscribers/{people[0]}/approve")).status_code == 200
        assert_used_up(await two.put(f"{second}/subscribers/{people[1]}/approve"), "people")
        assert_used_up(await two.post(f"{second}/subscribers", json=person(4)), "people")

        assert [row.people for row in await fetch(labour_engine, USED)] == [3]
        assert [one["state"] for one in (await one.get(second)).json()["subscribers"]] == ["approved", "requested"]
        await plan_as_another(two)


async def plan_as_another(client: AsyncClient) -> None:
    answer = await client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=speaking_as("eve"))
    labour = answer.headers["location"]
    added = await client.post(f"{labour}/subscribers", json=person(1), headers=speaking_as("eve"))
    assert added.status_code == 201, added.text


async def test_announcements_count_by_segments_and_people_and_a_birth_is_never_refused(
    labour_url: str, labour_engine: AsyncEngine
) -> None:
    async with api_process(labour_url, SEGMENTS_PER_DAY="7") as client:
        labour = await plan(client)
        for number in range(2):
            await client.post(f"{labour}/subscribers", json=person(number))
        begun = await client.put(f"{labour}/begin")
        assert [row.segments for row in await fetch(labour_engine, USED)] == [2]
        announced = await client.post(f"{labour}/updates", json=announcement("x" * 200))
        assert [row.segments for row in await fetch(labour_engine, USED)] == [6]
        await execute(labour_engine, "UPDATE labour SET announced_at = announced_at - interval '1 hour'")

        refused = await client.post(f"{labour}/updates", json=announcement("Soon"))
        complete = await client.put(f"{labour}/complete", json={"baby_name": "さくら"})  # which makes it two segments

        assert (begun.status_code, announced.status_code, complete.status_code) == (200, 201, 200)
        assert_used_up(refused, "segments")
        assert [row.segments for row in await fetch(labour_engine, USED)] == [10]
        assert [update["text"] for update in (await client.get(f"{labour}/updates")).json()["items"]] == ["x" * 200]


async def test_a_contraction_that_begins_the_labour_counts_as_the_beginning(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    await labour_client.post(f"{labour}/subscribers", json=person(1))

    started = (await labour_client.post(f"{labour}/contractions", json={})).json()
    await labour_client.delete(f"{labour}/contractions/{started['id']}")
    await labour_client.post(f"{labour}/contractions", json={})

    assert [row.segments for row in await fetch(labour_engine, USED)] == [1]


async def test_labours_are_planned_so_often_a_day_and_again_on_the_next(
    labour_url: str, labour_engine: AsyncEngine
) -> None:
    async with api_process(labour_url, LABOURS_PER_DAY="2") as client:
        for _ in range(2):
            await client.put(f"{await plan(client)}/complete")
        assert_used_up(await client.post("/api/v1/labours", json={"mother_name": "Ada"}), "labours")

        await execute(labour_engine, "UPDATE account_day SET day = day - 1")
        await plan(client)


async def test_of_ten_requests_at_the_same_moment_as_many_pass_as_are_allowed(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine
) -> None:
    together = asyncio.Barrier(10)

    async def add() -> str:
        try:
            async with labour_units() as uow:
                usage = Usage()
                usage.add_person()
                await together.wait()  # every transaction has begun, and none has counted
                await usage.record(uow, "ada", Allowances(people=4))
        except DayUsedUp:
            return "refused"
        return "passed"

    outcomes = await asyncio.gather(*(add() for _ in range(10)))

    assert sorted(outcomes) == ["passed"] * 4 + ["refused"] * 6
    assert [row.people for row in await fetch(labour_engine, USED)] == [4]


async def test_a_birth_and_an_announcement_of_one_account_at_the_same_moment_do_not_deadlock(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    await labour_client.post(f"{labour}/subscribers", json=person(1))
    requests = [
        labour_client.post(f"{labour}/updates", json=announcement("Now"), headers={"Idempotency-Key": "one"}),
        labour_client.put(f"{labour}/complete", headers={"Idempotency-Key": "two"}),
    ]

    announced, complete = await asyncio.gather(*requests)

    assert complete.status_code == 200
    assert announced.status_code in (201, 409)


async def test_counting_a_birth_costs_no_round_trip(labour_units: UnitsOfWork, labour_engine: AsyncEngine) -> None:
    async with labour_units() as uow:
        labour = await plan_labour(CommandContext(uow, "ada"), mother_name="Ada")
        labour.subscribe(name="Grace", phone="+12025550123", at=NOW)
    statements = list[str]()

    def note(_: object, record: ConnectionPoolEntry, __: object) -> None:
        record.driver_connection.add_query_logger(lambda logged: statements.append(logged.query))  # type: ignore[union-attr]

    event.listen(labour_engine.sync_engine, "checkout", note)
    runner = CommandRunner(labour_units, "ada", Key("ada", "a key", b"a request"))
    await runner.run(lambda context: complete_labour(context, labour.id), lambda _: Answer(200, {}, b""))

    await asyncio.sleep(0)  # the driver reports a statement in the next turn of the loop
    own = [one.split()[0] for one in statements if "pg_catalog" not in one and "jit" not in one]  # not about types
    assert own == ["BEGIN", "SELECT", "UPDATE", "WITH", "COMMIT"]
    assert await fetch(labour_engine, USED) == [(0, 0, 1, 0)]


async def test_keys_are_bounded_a_repeated_one_is_answered_and_a_request_without_a_key_passes(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    labour = await plan(labour_client)
    note, key = {"kind": "private", "text": "Tired"}, {"Idempotency-Key": "one"}
    first = await labour_client.post(f"{labour}/updates", json=note, headers=key)
    await execute(labour_engine, f"UPDATE account_day SET keys = {KEY_LIMIT}")

    refused = await labour_client.post(f"{labour}/updates", json=note, headers={"Idempotency-Key": "two"})
    again = await labour_client.post(f"{labour}/updates", json=note, headers=key)

    assert_used_up(refused, "keys")
    assert (again.status_code, again.content) == (201, first.content)
    assert (await labour_client.post(f"{labour}/updates", json=note)).status_code == 201
    complete = await labour_client.put(f"{labour}/complete", headers={"Idempotency-Key": "three"})
    assert complete.status_code == 200  # a birth is never refused
    assert await fetch(labour_engine, "SELECT count(*) FROM idempotency_key") == [2]


@pytest.mark.parametrize("day", ["day - 1", "day"])
async def test_days_that_are_over_are_forgotten(
    labour_units: UnitsOfWork, labour_engine: AsyncEngine, day: str
) -> None:
    async with labour_units() as uow:
        await Usage(keys=1).record(uow, "eve", Allowances())
    await execute(labour_engine, f"UPDATE account_day SET day = {day}")

    for _ in range(100):
        async with labour_units() as uow:
            await Usage(keys=1).record(uow, "ada", Allowances())

    accounts = await fetch(labour_engine, "SELECT account FROM account_day ORDER BY account")
    assert accounts == (["ada", "eve"] if day == "day" else ["ada"])
