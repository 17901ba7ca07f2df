"""A message in doubt under the policy `hold` waits for an operator, who resolves it once."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from litestar.testing import AsyncTestClient

from notification.app import build
from notification.delivery.reconciler import Reconciled
from notification.domain.notification import Notification, NotificationState, Policy
from notification.settings import Settings

from .sms_parts import PostOffice, notification

OPERATOR = {"Authorization": "Bearer local-operations"}


@pytest.fixture
async def operations(notification_url: str, bus_host: str) -> AsyncIterator[AsyncTestClient[Any]]:
    settings = Settings.load({"FERN_MODE": "local", "NOTIFICATION_DATABASE_URL": notification_url})
    async with AsyncTestClient(build(settings)) as api:
        api.headers.update(OPERATOR)
        yield api


async def resolve(api: httpx.AsyncClient, one: Notification, decision: str) -> httpx.Response:
    return await api.post(f"/operations/notifications/{one.id}/resolve", json={"decision": decision})


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
        ("sent", NotificationState.SENT, ["notification.sent"], 0),
        ("give-up", NotificationState.FAILED, ["notification.failed"], 0),
        ("send-again", NotificationState.SENT, ["notification.sent"], 1),
    ],
)
async def test_a_held_message_waits_for_an_operator_who_resolves_it_once(
    office: PostOffice,
    operations: AsyncTestClient[Any],
    decision: str,
    state: NotificationState,
    events: list[str],
    texts: int,
) -> None:
    one = await held(office)
    shown = (await operations.get("/operations/notifications")).json()["items"]
    assert [(item["id"], item["state"]) for item in shown] == [(str(one.id), "IN_DOUBT")]
    assert one.phone not in str(shown)

    answer = await resolve(operations, one, decision)
    await office.dispatcher().run_once()

    assert answer.status_code == 200
    assert await office.state(one.id) == state
    assert await office.events(one.id) == events
    assert len(office.texts(one)) == texts
    again = await resolve(operations, one, "send-again")
    assert (again.status_code, again.json()["type"]) == (409, "urn:fernlabour:problem:not-in-doubt")


async def test_only_an_operator_may_resolve_a_message(office: PostOffice, operations: AsyncTestClient[Any]) -> None:
    one = await held(office)
    operations.headers.pop("Authorization")

    assert (await resolve(operations, one, "give-up")).status_code == 401
    assert await office.state(one.id) == "IN_DOUBT"


async def test_a_message_that_does_not_exist_cannot_be_resolved(operations: AsyncTestClient[Any]) -> None:
    assert (await resolve(operations, notification(), "sent")).status_code == 404


async def test_an_operator_sees_the_count_of_each_state_and_the_messages_about_an_event(
    office: PostOffice, operations: AsyncTestClient[Any]
) -> None:
    doubtful, waiting = await held(office), await office.post_one()

    counts = (await operations.get("/operations/notifications/counts")).json()
    about = (await operations.get("/operations/notifications", params={"event_id": str(waiting.event_id)})).json()

    assert {state: count for state, count in counts["states"].items() if count} == {"IN_DOUBT": 1, "PENDING": 1}
    assert counts["oldest_unsettled_seconds"] > 0
    assert [(item["id"], item["state"]) for item in about["items"]] == [(str(waiting.id), "PENDING")]
    assert doubtful.event_id != waiting.event_id
