"""What the provider tells us moves a message forward, never back, in whatever order and however often it is told."""

import itertools
import random
from uuid import UUID

import pytest

from notification.delivery import callbacks, ledger

from .sms_parts import PostOffice

SID = "SM" + "1" * 32
OTHER_SID = "SM" + "2" * 32


async def taken(office: PostOffice, attempt: int = 1) -> UUID:
    """A message whose sender has called and heard nothing yet."""
    one = await office.post_one()
    for _ in range(attempt):
        if await office.state(one.id) != "PENDING":
            async with office.units() as uow:
                await ledger.expire_leases(uow.session)
            await office.reconciler().run_once()
        async with office.units() as uow:
            await ledger.take(uow.session, limit=1, lease_seconds=0 if attempt > 1 else 60, call_within=1)
    return one.id


RANK = {"SENDING": 0, "SENT": 1, "DELIVERED": 2, "UNDELIVERED": 2}


@pytest.mark.parametrize("end", ["delivered", "undelivered", "failed"])
async def test_any_order_and_any_repetition_of_callbacks_comes_to_the_same_end(office: PostOffice, end: str) -> None:
    orders = list(itertools.permutations(["queued", "sending", "sent", end]))
    doubled = [random.Random(seed).sample(order * 2, 8) for seed, order in enumerate(orders)]

    for order in [*orders, *doubled]:
        notification_id = await taken(office)
        rank = 0
        for status in order:
            async with office.units() as uow:
                await callbacks.apply_status(uow, notification_id, sid=SID, status=status, code=30003, attempt=1)
            before, rank = rank, RANK[await office.state(notification_id)]
            assert rank >= before, order

        state, news = ("DELIVERED", "delivered") if end == "delivered" else ("UNDELIVERED", "failed")
        assert await office.state(notification_id) == state, order
        assert await office.news(notification_id) == ["notification.sent", f"notification.{news}"], order


async def test_the_first_end_stays_the_end(office: PostOffice) -> None:
    notification_id = await taken(office)
    for status in ("undelivered", "delivered", "undelivered"):
        async with office.units() as uow:
            await callbacks.apply_status(uow, notification_id, sid=SID, status=status, code=30003, attempt=1)

    row = await office.row(notification_id)
    assert (row["state"], row["failure"]) == ("UNDELIVERED", "the phone is switched off or out of reach")
    assert await office.news(notification_id) == ["notification.sent", "notification.failed"]


async def test_why_a_message_did_not_arrive_is_said_in_words(office: PostOffice) -> None:
    for code in (30001, 30003, 30005, 30006, 30007, 30008):
        notification_id = await taken(office)
        async with office.units() as uow:
            await callbacks.apply_status(uow, notification_id, sid=SID, status="undelivered", code=code, attempt=1)

        row = await office.row(notification_id)
        assert row["failure_code"] == code
        assert not any(digit in row["failure"] for digit in "0123456789")


async def test_a_status_nobody_knows_changes_nothing(office: PostOffice) -> None:
    notification_id = await taken(office)
    async with office.units() as uow:
        assert not await callbacks.apply_status(uow, notification_id, sid=SID, status="read", code=None, attempt=1)

    assert await office.state(notification_id) == "SENDING"


async def test_that_an_older_message_failed_says_nothing_about_the_newer_one_under_way(office: PostOffice) -> None:
    notification_id = await taken(office, attempt=2)

    async with office.units() as uow:
        assert not await callbacks.apply_status(uow, notification_id, sid=SID, status="failed", code=30007, attempt=1)

    assert await office.state(notification_id) == "SENDING"


async def test_that_another_message_was_not_delivered_says_nothing_about_ours(office: PostOffice) -> None:
    notification_id = await taken(office, attempt=2)
    async with office.units() as uow:
        await ledger.settle_sent(uow, notification_id, sid=OTHER_SID, attempt=2)

    for status, attempt in (("undelivered", 1), ("failed", 1)):
        async with office.units() as uow:
            changed = await callbacks.apply_status(
                uow, notification_id, sid=SID, status=status, code=30003, attempt=attempt
            )
        assert not changed

    assert await office.state(notification_id) == "SENT"
    async with office.units() as uow:
        assert await callbacks.apply_status(
            uow, notification_id, sid=OTHER_SID, status="undelivered", code=30003, attempt=2
        )


async def test_a_message_that_a_person_declared_sent_can_still_turn_out_undelivered(office: PostOffice) -> None:
    notification_id = await taken(office)
    async with office.units() as uow:
        await ledger.settle_sent(uow, notification_id, sid=None)

    async with office.units() as uow:
        assert await callbacks.apply_status(uow, notification_id, sid=SID, status="undelivered", code=30003, attempt=1)
