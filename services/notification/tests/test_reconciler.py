"""A question or a callback resolves a message in doubt. It is sent again only if the provider certainly does not have it."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from e2e.support.waiting import eventually
from messaging.unit_of_work import UnitsOfWork
from notification.delivery.reconciler import Reconciled
from notification.domain.notification import Notification, Policy

from .sms_parts import PostOffice, client, http, notifications, post_office, raw_provider, read_request

HOUR = 3600.0


async def in_doubt(office: PostOffice, fault: str = "reply-lost", **settings: Any) -> Notification:
    """A message whose dispatcher got no answer. The fault decides whether the provider has it."""
    one = await office.post_one()
    office.fault(fault, times=1, **settings)
    await office.dispatcher().run_once()
    assert await office.state(one.id) == "IN_DOUBT"
    return one


# Found


@pytest.mark.parametrize("policy", Policy)
async def test_a_listed_message_was_sent_under_every_policy(office: PostOffice, policy: Policy) -> None:
    one = await in_doubt(office)

    counts = await office.reconciler(policies={"labour.begun": policy}, quarantine=HOUR).run_once()

    assert counts == Reconciled(found=1)
    row = await office.row(one.id)
    assert (row["state"], [row["sid"]], row["failure"]) == ("SENT", office.texts(one), None)
    assert await office.events(one.id) == ["notification.sent"]


async def test_a_message_still_queued_at_the_provider_is_found(notification_units: UnitsOfWork, tmp_path: Path) -> None:
    async with post_office(notification_units, tmp_path / "sms", pace=HOUR) as office:
        one = await in_doubt(office)

        assert await office.reconciler().run_once() == Reconciled(found=1)
        assert len(office.texts(one)) == 1


async def test_a_message_whose_lease_expired_is_resolved_in_the_same_way(office: PostOffice) -> None:
    one = await office.post_one()
    assert await office.put_in_doubt(one)

    assert await office.reconciler().run_once() == Reconciled(sent_again=1)
    await office.dispatcher().run_once()

    assert len(office.texts(one)) == 1
    assert (await office.row(one.id))["attempt"] == 2


# Absent


async def test_absence_is_believed_only_after_the_quarantine(office: PostOffice) -> None:
    one = await in_doubt(office, "request-lost")

    assert await office.reconciler(quarantine=HOUR).run_once() == Reconciled(in_doubt=1)
    assert await office.state(one.id) == "IN_DOUBT"

    assert await office.reconciler(quarantine=0).run_once() == Reconciled(sent_again=1)
    await office.dispatcher().run_once()
    assert len(office.texts(one)) == 1


@pytest.mark.parametrize("fault", ["created-late", "list-lag"])
async def test_a_message_hidden_for_less_than_the_quarantine_is_found_in_time(office: PostOffice, fault: str) -> None:
    if fault == "list-lag":
        office.fault(fault, seconds=0.3)
    one = await (in_doubt(office) if fault == "list-lag" else in_doubt(office, fault, seconds=0.3))

    async def state_after_asking() -> str:
        assert (await office.reconciler(quarantine=HOUR).run_once()).sent_again == 0
        return await office.state(one.id)

    await eventually(state_after_asking, lambda state: state == "SENT")

    assert await office.dispatcher().run_once() == 0
    assert len(office.texts(one)) == 1


async def test_a_message_hidden_for_longer_than_the_quarantine_is_sent_twice(office: PostOffice) -> None:
    """The price of `ask`, stated in the guarantees. The policies `at_most_once` and `hold` do not have it."""
    office.fault("list-lag", seconds=HOUR, times=1)
    one = await in_doubt(office)

    await office.reconciler(quarantine=0).run_once()
    await office.dispatcher().run_once()

    assert len(office.texts(one)) == 2
    assert await office.events(one.id) == ["notification.sent"]


async def test_at_most_once_gives_up_rather_than_send_again(office: PostOffice) -> None:
    one = await in_doubt(office, "request-lost")
    policies = {"labour.begun": Policy.AT_MOST_ONCE}
    assert await office.reconciler(policies=policies, quarantine=HOUR).run_once() == Reconciled(in_doubt=1)

    assert await office.reconciler(policies=policies).run_once() == Reconciled(given_up=1)

    row = await office.row(one.id)
    assert row["state"] == "FAILED"
    assert row["failure"] == "it is unknown whether it was sent, and this kind of message is never sent twice"
    assert await office.events(one.id) == ["notification.failed"]
    assert await office.dispatcher().run_once() == 0
    assert office.texts(one) == []


async def test_at_least_once_sends_again_without_the_quarantine(office: PostOffice) -> None:
    one = await in_doubt(office, "request-lost")

    policies = {"labour.begun": Policy.AT_LEAST_ONCE}
    assert await office.reconciler(policies=policies, quarantine=HOUR).run_once() == Reconciled(sent_again=1)
    await eventually(office.dispatcher().run_once, lambda sent: sent == 1)

    assert len(office.texts(one)) == 1


async def test_at_least_once_waits_longer_after_each_attempt(office: PostOffice) -> None:
    """Otherwise a provider that accepts messages and lists none would cause texts without end."""
    one = await office.post_one()
    reconciler = office.reconciler(policies={"labour.begun": Policy.AT_LEAST_ONCE}, quarantine=HOUR, ask_interval=0.01)
    waits = []
    for _ in range(4):
        await eventually(lambda: office.put_in_doubt(one), bool)
        await eventually(reconciler.run_once, lambda counts: counts.sent_again == 1)
        row = await office.row(one.id)
        waits.append((row["next_attempt_at"] - row["in_doubt_at"]).total_seconds())

    assert waits[3] >= 0.04, waits


async def test_the_policy_is_chosen_by_the_event_type(office: PostOffice) -> None:
    begun = await office.post_one(event_type="labour.begun")
    assert await office.put_in_doubt(begun)
    completed = await office.post_one(event_type="labour.completed")
    assert await office.put_in_doubt(completed)

    await office.reconciler(policies={"labour.begun": Policy.AT_MOST_ONCE}).run_once()

    assert await office.state(begun.id) == "FAILED"
    assert await office.state(completed.id) == "PENDING"


# Failed and canceled messages


@pytest.mark.parametrize("status", ["failed", "canceled"])
async def test_a_message_that_failed_at_the_provider_does_not_count(office: PostOffice, status: str) -> None:
    one = await in_doubt(office)
    await eventually(lambda: _moving(office), lambda moving: not moving)
    office.sms.sandbox.store.db.execute("UPDATE message SET status = ?", (status,))

    assert await office.reconciler().run_once() == Reconciled(sent_again=1)
    await office.dispatcher().run_once()

    assert len(office.texts(one)) == 2, "the one that failed, and the one that arrives"


async def _moving(office: PostOffice) -> bool:
    return office.sms.sandbox.store.next_step_at() is not None


# Silence


async def test_a_silent_provider_leaves_everything_in_doubt(office: PostOffice) -> None:
    one = await in_doubt(office)

    async with client("http://127.0.0.1:9") as unreachable:
        for _ in range(3):
            assert await office.reconciler(unreachable).run_once() == Reconciled(in_doubt=1)

    assert await office.state(one.id) == "IN_DOUBT"
    assert await office.events(one.id) == []
    assert await office.reconciler().run_once() == Reconciled(found=1)


async def test_one_question_does_not_wait_for_the_answer_to_another(office: PostOffice) -> None:
    """Otherwise a provider that hangs would delay all messages in doubt, and the stop of the process."""
    everyone = notifications(10)
    for one in everyone:
        await office.post(one)
        assert await office.put_in_doubt(one)
    all_have_asked = asyncio.Barrier(len(everyone))

    async def answer_when_all_have_asked(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await read_request(reader)
        await all_have_asked.wait()
        writer.write(http("200 OK", '{"messages": [], "next_page_uri": null}'))
        await writer.drain()

    async with raw_provider(answer_when_all_have_asked) as url, client(url) as provider:
        counts = await office.reconciler(provider).run_once()

    assert counts == Reconciled(sent_again=len(everyone))


async def test_several_reconcilers_do_not_ask_about_the_same_message_at_once(office: PostOffice) -> None:
    await in_doubt(office)

    counts = await asyncio.gather(*(office.reconciler(ask_interval=HOUR).run_once() for _ in range(4)))

    assert sum(count.found + count.in_doubt for count in counts) == 1


# By callback


@pytest.mark.parametrize("state", ["PENDING", "SENDING", "IN_DOUBT"])
async def test_a_callback_is_proof_in_every_unsettled_state(office: PostOffice, state: str) -> None:
    office.fault("list-lag", seconds=HOUR)
    one = await in_doubt(office)
    if state != "IN_DOUBT":  # hidden for too long: it is about to be sent again
        assert await office.reconciler().run_once() == Reconciled(sent_again=1)
    if state == "SENDING":
        await office.dispatcher().take(1)
    assert await office.state(one.id) == state

    (sid,) = office.texts(one)
    assert await office.callback(one.id, "sent", sid=sid)

    row = await office.row(one.id)
    assert (row["state"], row["sid"]) == ("SENT", sid)
    assert await office.events(one.id) == ["notification.sent"]
    assert await office.dispatcher().run_once() == 0
    assert len(office.texts(one)) == 1
