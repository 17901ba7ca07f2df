"""For one person and one labour an older text never follows a newer one: what has not gone out by then is superseded."""

import asyncio

import pytest
from httpx import AsyncClient

from e2e.support.databases import as_owner
from e2e.support.waiting import eventually
from messaging.database import create_engine
from messaging.unit_of_work import UnitOfWork
from notification.delivery import dispatcher, ledger
from notification.delivery.reconciler import Reconciled
from notification.domain.notification import Lease, Notification, Policy

from .sms_parts import PHONE, PostOffice, held_at, in_order, notification

HOUR = 3600.0
REASON = "a newer message to this person was sent instead"


async def in_doubt_then_completed(office: PostOffice, fault: str) -> tuple[Notification, Notification]:
    """The call about the beginning got no answer, and the birth was sent meanwhile."""
    begun, completed = in_order()
    await office.post(begun)
    office.fault(fault, times=1)
    await office.dispatcher().run_once()
    assert await office.state(begun.id) == "IN_DOUBT"
    await office.post(completed)
    assert await office.dispatcher().run_once() == 1, "the birth does not wait for the quarantine"
    assert await office.state(completed.id) == "SENT"
    return begun, completed


async def assert_superseded(office: PostOffice, one: Notification) -> None:
    row = await office.row(one.id)
    assert (row["state"], row["failure"]) == ("SUPERSEDED", REASON)
    assert await office.events(one.id) == ["notification.superseded"]
    assert await office.dispatcher().run_once() == 0
    assert office.texts(one) == []


# In doubt


@pytest.mark.parametrize("policy", Policy)
async def test_a_text_in_doubt_that_the_provider_does_not_have_is_superseded_under_every_policy(
    office: PostOffice, policy: Policy
) -> None:
    begun, _ = await in_doubt_then_completed(office, "request-lost")
    policies = {"labour.begun": policy}

    assert await office.reconciler(policies=policies, quarantine=HOUR).run_once() == Reconciled(in_doubt=1)
    assert await office.reconciler(policies=policies).run_once() == Reconciled(superseded=1)

    await assert_superseded(office, begun)


async def test_a_text_in_doubt_that_the_provider_has_was_sent_before_the_newer_one(office: PostOffice) -> None:
    begun, _ = await in_doubt_then_completed(office, "reply-lost")

    assert await office.reconciler(quarantine=HOUR).run_once() == Reconciled(found=1)

    assert await office.state(begun.id) == "SENT"
    assert await office.events(begun.id) == ["notification.sent"]


async def test_an_operator_cannot_send_a_text_after_a_newer_one(office: PostOffice, operator: AsyncClient) -> None:
    begun, _ = await in_doubt_then_completed(office, "request-lost")

    path = f"/operations/notifications/{begun.id}/resolve"
    answer = await operator.post(path, json={"decision": "send-again"})

    assert (answer.status_code, answer.json()["type"]) == (409, "urn:fernlabour:problem:superseded")
    assert await office.state(begun.id) == "IN_DOUBT"


@pytest.mark.parametrize(("status", "state"), [("sent", "SENT"), ("delivered", "DELIVERED"), ("failed", "UNDELIVERED")])
async def test_a_callback_proves_that_a_superseded_text_was_sent(office: PostOffice, status: str, state: str) -> None:
    begun, _ = await in_doubt_then_completed(office, "request-lost")
    await office.reconciler().run_once()

    assert await office.callback(begun.id, status)

    assert await office.state(begun.id) == state
    assert (await office.events(begun.id))[:2] == ["notification.superseded", "notification.sent"]


# Not sent yet


async def test_texts_that_wait_together_go_out_in_the_order_of_their_events(office: PostOffice) -> None:
    texts = in_order(count=4)
    await office.post(*reversed(texts))  # as consumers do that handle the newest event first

    for _ in texts:
        assert await office.dispatcher().run_once() == 1

    on_the_phone = [message.body for message in reversed(office.sms.sandbox.store.newest(PHONE, 10))]
    assert on_the_phone == [one.body for one in texts]


async def test_a_text_that_comes_after_a_newer_one_was_sent_is_superseded(office: PostOffice) -> None:
    """The consumer handles the birth before the beginning."""
    begun, announced, completed = in_order(count=3)
    await office.post(completed)
    await office.dispatcher().run_once()

    await office.post(begun, announced)
    for _ in range(2):
        assert await office.dispatcher().run_once() == 0

    for late in (begun, announced):
        await assert_superseded(office, late)
    assert await office.state(completed.id) == "SENT"


async def test_the_birth_does_not_wait_for_the_next_attempt_of_an_older_text(office: PostOffice) -> None:
    begun, completed = in_order()
    await office.post(begun)
    await next_attempt_in(office, begun, HOUR)
    await office.post(completed)

    assert await office.dispatcher().run_once() == 1
    assert await office.state(completed.id) == "SENT"

    await next_attempt_in(office, begun, 0)
    assert await office.dispatcher().run_once() == 0
    await assert_superseded(office, begun)


async def next_attempt_in(office: PostOffice, one: Notification, seconds: float) -> None:
    """Set the next attempt of a message, as if the provider had refused it for a time."""
    async with office.units() as uow:
        at = "clock_timestamp() + make_interval(secs => $2)"
        await uow.connection.execute(f"UPDATE notification SET next_attempt_at = {at} WHERE id = $1", one.id, seconds)


# A call under way


async def test_the_newer_text_waits_for_the_end_of_the_call_and_goes_out_at_once_then(office: PostOffice) -> None:
    begun, completed = in_order()
    await office.post(begun)
    stop = asyncio.Event()
    sender = office.dispatcher(poll_interval=HOUR)  # so that only a wake-up can make it look again

    async with held_at(dispatcher.AFTER_CALL, sender.run(stop)):
        await office.post(completed)
        assert await office.dispatcher().run_once() == 0
        sender.wake()
        sent = asyncio.create_task(eventually(lambda: office.state(completed.id), lambda state: state == "SENT"))
        sent.add_done_callback(lambda _: stop.set())
    await sent

    assert [await office.state(one.id) for one in (begun, completed)] == ["SENT", "SENT"]


async def test_a_dispatcher_that_was_paused_until_the_newer_text_was_sent_does_not_call(office: PostOffice) -> None:
    begun, completed = in_order()
    await office.post(begun)

    async with held_at(dispatcher.AFTER_TAKE, office.dispatcher(lease_seconds=0.2, call_within=0.1).run_once()):
        await office.post(completed)
        await eventually(office.dispatcher().run_once, lambda sent: sent == 1)
        assert await office.state(completed.id) == "SENT"

    assert await office.state(begun.id) == "PENDING", "returned to the queue by the sender, which was too late"
    assert await office.dispatcher().run_once() == 0
    await assert_superseded(office, begun)


async def test_a_take_does_not_send_an_older_text_while_another_take_has_the_newer_one(office: PostOffice) -> None:
    """The other dispatcher did not see the older text, and has not committed yet."""
    begun, completed = in_order()
    await office.post(completed)

    async with office.units() as taking:
        await taking.connection.execute("UPDATE notification SET state = 'SENDING' WHERE id = $1", completed.id)
        await office.post(begun)
        assert await office.dispatcher().run_once() == 0
        assert await office.state(begun.id) == "PENDING"

    assert await office.dispatcher().run_once() == 0
    await assert_superseded(office, begun)


_HOLD_THE_SLOW_TAKE = """
    CREATE FUNCTION hold_if_slow() RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN
        IF current_setting('application_name') = 'slow' THEN PERFORM pg_advisory_xact_lock_shared(7); END IF;
        RETURN true;
    END $$;
    CREATE POLICY hold ON notification USING (hold_if_slow());
    ALTER TABLE notification ENABLE ROW LEVEL SECURITY, FORCE ROW LEVEL SECURITY;
"""


async def test_a_take_that_began_before_the_older_text_was_there_leaves_the_newer_one_out(
    office: PostOffice, notification_url: str
) -> None:
    """A policy of the table holds one take in the middle of its statement, at the first row that it reads: it sees no older text
    then. Meanwhile another take finds both texts and takes the older one.
    """
    begun, completed = in_order()
    await office.post(completed)
    engine = create_engine(notification_url, process="slow")
    await as_owner(notification_url, _HOLD_THE_SLOW_TAKE)

    async def take_slowly() -> list[Lease]:
        async with UnitOfWork(engine, source="notification", committed=lambda: None) as uow:
            return (await ledger.take(uow, limit=10, lease_seconds=60, call_within=60)).leases

    async with office.units() as holding:
        await holding.connection.execute("SELECT pg_advisory_xact_lock(7)")
        slow_take = asyncio.create_task(take_slowly())
        waits = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
        await eventually(lambda: holding.connection.fetchval(waits), lambda count: count == 1)
        await office.post(begun)
        assert [lease.id for lease in await office.dispatcher().take(10)] == [begun.id]

    assert await slow_take == []
    assert await office.state(completed.id) == "PENDING"
    await engine.dispose()


# Others


async def test_other_people_other_labours_and_texts_without_an_order_are_not_affected(office: PostOffice) -> None:
    begun, completed = in_order()
    other_person = notification("+12025550199", sequence=1, labour_id=begun.labour_id)
    other_labour = notification(sequence=1, person_id=begun.person_id)
    unordered = notification(labour_id=begun.labour_id, person_id=begun.person_id)
    await office.post(completed)
    await office.dispatcher().run_once()

    await office.post(begun, other_person, other_labour, unordered)
    assert await office.dispatcher().run_once() == 3

    await assert_superseded(office, begun)
    for one in (other_person, other_labour, unordered):
        assert await office.state(one.id) == "SENT"
