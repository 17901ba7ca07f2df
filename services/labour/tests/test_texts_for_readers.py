"""A text that other people read has no link and no invisible character: names, announcements and statuses."""

import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine

from e2e.support.api import speaking_as
from tests.labour_parts import GRACE, assert_problem, fetch, outbox_types, plan

LABOURS, SUBSCRIPTIONS = "/api/v1/labours", "/api/v1/subscriptions"


@pytest.mark.parametrize("bad", ["Your bank: bit.ly/abc", "Ada\u202egnp.exe"], ids=["link", "direction"])
async def test_it_is_refused_wherever_others_read_it_and_nothing_is_stored(
    labour_client: AsyncClient, labour_engine: AsyncEngine, bad: str
) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]
    stored = await outbox_types(labour_engine)

    for path, body, field in (
        (f"{labour}/complete", {"baby_name": bad}, "baby_name"),
        (LABOURS, {"mother_name": bad}, "mother_name"),
        (f"{labour}/subscribers", {**GRACE, "name": bad}, "name"),
        (SUBSCRIPTIONS, {**GRACE, "name": bad, "token": token}, "name"),
        (f"{labour}/updates", {"kind": "announcement", "text": bad}, "text"),
        (f"{labour}/updates", {"kind": "status", "text": bad}, "text"),
    ):
        method, caller = "PUT" if path.endswith("/complete") else "POST", "eve" if path == LABOURS else "ada"
        answer = await labour_client.request(method, path, json=body, headers=speaking_as(caller))
        problem = assert_problem(answer, 400, "text-not-allowed")
        assert [one["field"] for one in problem["fields"]] == [field]
        assert bad not in answer.text

    assert await outbox_types(labour_engine) == stored
    assert await fetch(labour_engine, "SELECT count(*) FROM labour_update") == [0]


@pytest.mark.parametrize("bad", ["Your bank 0800 111 2222", "Ada. FernLabour: Pay now"], ids=["number", "sentence"])
async def test_a_name_with_a_phone_number_or_a_sentence_is_refused_and_an_announcement_with_one_is_not(
    labour_client: AsyncClient, bad: str
) -> None:
    labour = await plan(labour_client)
    token = (await labour_client.post(f"{labour}/invites", json={})).json()["token"]

    for path, body in (
        (LABOURS, {"mother_name": bad}),
        (f"{labour}/subscribers", {**GRACE, "name": bad}),
        (SUBSCRIPTIONS, {**GRACE, "name": bad, "token": token}),
    ):
        assert_problem(await labour_client.post(path, json=body, headers=speaking_as("ada")), 400, "text-not-allowed")
    update = {"kind": "announcement", "text": "Ring the ward: 020 7946 0018"}
    assert (await labour_client.post(f"{labour}/updates", json=update)).status_code == 201
    assert_problem(await labour_client.put(f"{labour}/complete", json={"baby_name": bad}), 400, "text-not-allowed")


async def test_what_only_the_mother_reads_may_have_a_link(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)

    note = {"kind": "private", "text": "https://hospital.example/ward"}
    assert (await labour_client.post(f"{labour}/updates", json=note)).status_code == 201
    notes = {"notes": "Pictures: https://album.example"}
    assert (await labour_client.put(f"{labour}/complete", json=notes)).status_code == 200
