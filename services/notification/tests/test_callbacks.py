"""Status callbacks only move a message forward, in any order and with any number of repetitions."""

import itertools
import random

import pytest

from notification.delivery import ledger
from notification.domain.transitions import record_sent

from .sms_parts import PostOffice

OTHER_SID = "SM" + "2" * 32


RANK = {"SENDING": 0, "SENT": 1, "DELIVERED": 2, "UNDELIVERED": 2}


@pytest.mark.parametrize("end", ["delivered", "undelivered", "failed"])
async def test_any_order_and_any_repetition_of_callbacks_comes_to_the_same_end(office: PostOffice, end: str) -> None:
    orders = list(itertools.permutations(["queued", "sending", "sent", end]))
    doubled = [random.Random(seed).sample(order * 2, 8) for seed, order in enumerate(orders)]

    for order in [*orders, *doubled]:
        notification_id = await office.post_sending()
        rank = 0
        for status in order:
            await office.callback(notification_id, status)
            before, rank = rank, RANK[await office.state(notification_id)]
            assert rank >= before, order

        state, event = ("DELIVERED", "delivered") if end == "delivered" else ("UNDELIVERED", "failed")
        assert await office.state(notification_id) == state, order
        assert await office.events(notification_id) == ["notification.sent", f"notification.{event}"], order


async def test_a_final_state_stays_final(office: PostOffice) -> None:
    notification_id = await office.post_sending()
    for status in ("undelivered", "delivered", "undelivered"):
        await office.callback(notification_id, status)

    row = await office.row(notification_id)
    assert (row["state"], row["failure"]) == ("UNDELIVERED", "the phone is switched off or out of reach")
    assert await office.events(notification_id) == ["notification.sent", "notification.failed"]


async def test_the_reason_of_a_failed_delivery_is_in_words(office: PostOffice) -> None:
    for code in (30001, 30003, 30005, 30006, 30007, 30008):
        notification_id = await office.post_sending()
        await office.callback(notification_id, "undelivered", code=code)

        row = await office.row(notification_id)
        assert row["failure_code"] == code
        assert not any(digit in row["failure"] for digit in "0123456789")


async def test_an_unknown_status_changes_nothing(office: PostOffice) -> None:
    notification_id = await office.post_sending()

    assert not await office.callback(notification_id, "read", code=None)
    assert await office.state(notification_id) == "SENDING"


async def test_the_failure_of_an_older_attempt_does_not_change_the_one_under_way(office: PostOffice) -> None:
    notification_id = await office.post_sending(attempt=2)

    assert not await office.callback(notification_id, "failed", code=30007)
    assert await office.state(notification_id) == "SENDING"


async def test_the_failure_of_another_message_does_not_change_the_one_that_the_row_has(office: PostOffice) -> None:
    notification_id = await office.post_sending(attempt=2)
    async with office.units() as uow:
        await ledger.apply_one(uow, record_sent(notification_id, sid=OTHER_SID, attempt=2))

    for status in ("undelivered", "failed"):
        assert not await office.callback(notification_id, status, attempt=1)

    assert await office.state(notification_id) == "SENT"
    assert await office.callback(notification_id, "undelivered", sid=OTHER_SID, attempt=2)


async def test_a_message_that_an_operator_declared_sent_can_still_turn_out_undelivered(office: PostOffice) -> None:
    notification_id = await office.post_sending()
    async with office.units() as uow:
        await ledger.apply_one(uow, record_sent(notification_id, sid=None))

    assert await office.callback(notification_id, "undelivered")
