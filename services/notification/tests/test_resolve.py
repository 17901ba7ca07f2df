"""A message in doubt under the policy `hold` waits for an operator, who resolves it once."""

import pytest
from httpx import AsyncClient, Response

from notification.delivery.reconciler import Reconciled
from notification.domain.notification import Notification, Policy

from .sms_parts import PostOffice, notification


async def resolve(operator: AsyncClient, one: Notification, decision: str, **headers: str) -> Response:
    path = f"/operations/notifications/{one.id}/resolve"
    return await operator.post(path, json={"decision": decision}, headers=headers)


async def held(office: PostOffice) -> Notification:
    one = await office.post_one()
    office.fault("request-lost", times=1)
    await office.dispatcher().run_once()
    for _ in range(3):  # however often the provider is asked
        assert await office.reconciler(policies={"labour.begun": Policy.HOLD}).run_once() == Reconciled(in_doubt=1)
    return one


@pytest.mark.parametrize(
    ("decision", "state", "events", "texts"),
    [
        ("sent", "SENT", ["notification.sent"], 0),
        ("give-up", "FAILED", ["notification.failed"], 0),
        ("send-again", "SENT", ["notification.sent"], 1),
    ],
)
async def test_a_held_message_waits_for_an_operator_who_resolves_it_once(
    office: PostOffice, operator: AsyncClient, decision: str, state: str, events: list[str], texts: int
) -> None:
    one = await held(office)
    shown = (await operator.get("/operations/notifications")).json()["items"]
    assert [(item["id"], item["state"]) for item in shown] == [(str(one.id), "IN_DOUBT")]
    assert one.phone not in str(shown)

    answer = await resolve(operator, one, decision)
    await office.dispatcher().run_once()

    assert answer.status_code == 200
    assert await office.state(one.id) == state
    assert await office.events(one.id) == events
    assert len(office.texts(one)) == texts
    again = await resolve(operator, one, "send-again")
    assert (again.status_code, again.json()["type"]) == (409, "urn:fernlabour:problem:not-in-doubt")


async def test_only_an_operator_may_resolve_a_message(office: PostOffice, operator: AsyncClient) -> None:
    one = await held(office)

    assert (await resolve(operator, one, "give-up", Authorization="")).status_code == 401
    assert await office.state(one.id) == "IN_DOUBT"


async def test_a_message_that_does_not_exist_cannot_be_resolved(operator: AsyncClient) -> None:
    assert (await resolve(operator, notification(), "sent")).status_code == 404


async def test_an_operator_sees_counts_and_the_messages_about_an_event(
    office: PostOffice, operator: AsyncClient
) -> None:
    doubtful, waiting = await held(office), await office.post_one()

    counts = (await operator.get("/operations/notifications/counts")).json()
    query = {"event_id": str(waiting.event_id)}
    about = (await operator.get("/operations/notifications", params=query)).json()

    assert {state: count for state, count in counts["states"].items() if count} == {"IN_DOUBT": 1, "PENDING": 1}
    assert counts["oldest_unsettled_seconds"] > 0
    assert [(item["id"], item["state"]) for item in about["items"]] == [(str(waiting.id), "PENDING")]
    assert doubtful.event_id != waiting.event_id
