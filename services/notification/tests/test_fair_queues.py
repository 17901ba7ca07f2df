"""One labour does not delay another's messages, one sender has one rate, and a number gets no more than its segments of a day."""

import asyncio
from collections.abc import Sequence
from uuid import UUID

import asyncpg
import pytest
from uuid_utils.compat import uuid7

from e2e.support.crash import crash_at
from messaging import unit_of_work
from messaging.database import create_engine, is_transient
from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger, process
from notification.delivery.queue import TAKING
from notification.domain.notification import (
    BIRTH_WAITS,
    CONSENT_REQUESTED,
    TOO_MANY_TODAY,
    TOO_MANY_WAITING,
    Limits,
    Notification,
)

from .sms_parts import PHONE, PostOffice, in_order, notification, notifications

ONE_CALL = Limits(sender="slow", per_second=1e-6)  # the bucket holds one call, and is not refilled during a test


def announcements(people: int, *, count: int = 1, labour_id: UUID | None = None) -> list[Notification]:
    """Announcements of one labour, to each of so many people, oldest first."""
    labour_id, persons = labour_id or uuid7(), [uuid7() for _ in range(people)]
    return [
        notification(
            f"+1202555{number:04}",
            event_type="labour.announced",
            sequence=sequence,
            labour_id=labour_id,
            person_id=person_id,
        )
        for sequence in range(2, 2 + count)
        for number, person_id in enumerate(persons)
    ]


async def taken_in_order(office: PostOffice, count: int) -> list[UUID]:
    """The ids of the next messages, taken one by one."""
    return [lease.id for _ in range(count) for lease in await office.dispatcher().take(1)]


async def states(office: PostOffice, messages: Sequence[Notification]) -> list[str]:
    return [await office.state(one.id) for one in messages]


async def execute(office: PostOffice, statement: str) -> None:
    async with office.units() as uow:
        await uow.connection.execute(statement)


# Turns and priorities


async def test_labours_take_turns(office: PostOffice) -> None:
    many, few = announcements(10), announcements(3)
    await office.post(*many)
    await office.post(*few)

    taken = await taken_in_order(office, 8)

    ours = {one.id for one in few}
    assert [one in ours for one in taken] == [False, True, False, True, False, True, False, False]


async def test_a_labour_with_many_texts_delays_neither_the_birth_nor_the_announcement_of_another(
    office: PostOffice,
) -> None:
    async with office.units() as uow:
        await ledger.insert_pending(uow, announcements(50, count=20), most_waiting=10_000)
    birth = await office.post_one(event_type="labour.completed")
    announced = await office.post_one(event_type="labour.announced")

    assert await taken_in_order(office, 1) == [birth.id]
    assert announced.id in await taken_in_order(office, 2), "after one text of the other labour at most"


async def test_births_go_first_then_beginnings_then_other_kinds_then_announcements(office: PostOffice) -> None:
    kinds = ["labour.announced", "labour.begun", "labour.completed"]
    announced, begun, completed = [notification(event_type=kind) for kind in kinds]
    await office.post(announced, begun, completed)

    assert await taken_in_order(office, 3) == [completed.id, begun.id, announced.id]


async def test_labours_take_turns_with_the_questions_for_consent_too(office: PostOffice) -> None:
    """Each person who is added causes an event of its own."""
    labour_id = uuid7()
    many = [notification(event_type=CONSENT_REQUESTED, labour_id=labour_id) for _ in range(5)]
    for question in many:
        await office.post(question)
    few = await office.post_one(event_type=CONSENT_REQUESTED)

    assert few.id in await taken_in_order(office, 2), "after one question of the other labour at most"


async def test_a_message_that_waits_for_its_next_attempt_keeps_its_turn(office: PostOffice) -> None:
    first, *_ = await office.post(*announcements(3))
    office.fault("rate-limited", times=1)
    await office.dispatcher(in_flight=1).run_once()
    assert await office.state(first.id) == "PENDING"
    assert first.id not in await taken_in_order(office, 1)

    await execute(office, "UPDATE notification SET next_attempt_at = now()")
    assert await taken_in_order(office, 1) == [first.id]


# The birth, and older texts of the same labour


async def test_a_birth_waits_for_older_texts_to_the_person_and_then_goes_first(office: PostOffice) -> None:
    begun, announced, completed = in_order(count=3)
    await office.post(begun, announced, completed)
    await execute(office, f"UPDATE notification SET created_at = created_at - interval '{BIRTH_WAITS} s'")

    assert await office.dispatcher().run_once() == 1
    assert await states(office, [begun, announced, completed]) == ["PENDING", "PENDING", "SENT"]

    for _ in range(2):
        assert await office.dispatcher().run_once() == 0
    assert await states(office, [begun, announced, completed]) == ["SUPERSEDED", "SUPERSEDED", "SENT"]


# What one labour may have waiting


async def test_announcements_beyond_the_limit_are_failed_with_a_reason_and_an_event(office: PostOffice) -> None:
    labour_id = uuid7()
    before, beyond = announcements(3, labour_id=labour_id), announcements(4, labour_id=labour_id)
    for messages in (before, beyond):
        async with office.units() as uow:
            refused = await ledger.insert_pending(uow, messages, most_waiting=5)
    assert refused == 2

    failed = [one for one in beyond if await office.state(one.id) == "FAILED"]
    assert len(failed) == 2
    assert set(await states(office, before)) == {"PENDING"}
    for one in failed:
        assert (await office.row(one.id))["failure"] == TOO_MANY_WAITING
        assert await office.events(one.id) == ["notification.failed"]
    assert await office.dispatcher().run_once() == 5


async def test_the_limit_concerns_one_labour_and_never_a_birth_or_a_beginning(office: PostOffice) -> None:
    labour_id = uuid7()
    kinds = ["labour.begun", "labour.completed"] * 3
    others = [notification(event_type=kind, labour_id=labour_id) for kind in kinds]
    async with office.units() as uow:
        await ledger.insert_pending(uow, announcements(1, labour_id=labour_id), most_waiting=1)
        assert await ledger.insert_pending(uow, [*others, *announcements(1)], most_waiting=1) == 0
        assert await ledger.insert_pending(uow, announcements(1, labour_id=labour_id), most_waiting=1) == 1


async def test_a_refused_announcement_does_not_supersede_the_older_ones(office: PostOffice) -> None:
    older, newer = announcements(1, count=2)
    async with office.units() as uow:
        await ledger.insert_pending(uow, [older, newer], most_waiting=1)
    assert await states(office, [older, newer]) == ["PENDING", "FAILED"]

    assert await office.dispatcher().run_once() == 1
    assert await office.state(older.id) == "SENT"


# The rate of a sender


async def test_several_dispatchers_together_do_not_exceed_the_rate_of_their_sender(office: PostOffice) -> None:
    await office.post(*notifications(20))
    dispatchers = [office.dispatcher(limits=ONE_CALL) for _ in range(4)]

    async def taken_by_all() -> int:
        return sum(map(len, await asyncio.gather(*(one.take(5) for one in dispatchers for _ in range(3)))))

    assert await taken_by_all() == 1
    await execute(office, "UPDATE sender_rate SET free_at = free_at - interval '1000000 s'")  # as if so long had passed
    assert await taken_by_all() == 1
    await execute(office, "UPDATE sender_rate SET free_at = free_at - interval '9000000 s'")
    assert await taken_by_all() == 1, "the bucket holds no more"
    assert len(await office.dispatcher(limits=ONE_CALL._replace(sender="another")).take(5)) == 1


async def test_a_database_clock_that_was_set_back_stops_no_dispatcher(office: PostOffice) -> None:
    await office.post(*notifications(3))
    dispatcher = office.dispatcher(limits=ONE_CALL)
    assert len(await dispatcher.take(5)) == 1

    await execute(
        office, "UPDATE sender_rate SET free_at = free_at + interval '1 day'"
    )  # as if the clock went back that far

    assert [len(await dispatcher.take(5)) for _ in range(2)] == [1, 0], "one call at once, and then at the rate again"


async def test_a_dispatcher_that_dies_in_its_take_spends_nothing(office: PostOffice) -> None:
    await office.post(*notifications(2))

    with crash_at(unit_of_work.BEFORE_COMMIT):
        await office.dispatcher(limits=ONE_CALL).take(5)

    assert len(await office.dispatcher(limits=ONE_CALL).take(5)) == 1


async def test_a_dispatcher_that_is_frozen_in_its_take_does_not_hold_up_the_others(
    office: PostOffice, notification_url: str
) -> None:
    """The server ends the session of the frozen one, with the limits of the dispatcher process."""
    await office.post(*notifications(2))
    engine = create_engine(notification_url, process="frozen", limits=process.LIMITS)

    async def freeze_in_a_take() -> None:
        async with UnitOfWork(engine, source="notification", committed=lambda: None).locking(TAKING) as frozen:
            await ledger.take(frozen, limit=1, lease_seconds=60, call_within=60, limits=ONE_CALL)
            assert len(await office.dispatcher(limits=ONE_CALL).take(5)) == 1, "the frozen one has spent nothing"

    with pytest.raises(asyncpg.InterfaceError) as ended:  # its connection is closed
        await freeze_in_a_take()
    assert is_transient(ended.value)
    await engine.dispose()


async def test_superseded_texts_cost_no_call(office: PostOffice) -> None:
    begun, completed = in_order()
    await office.post(completed)
    await office.dispatcher().run_once()
    await office.post(begun)

    assert await office.dispatcher(limits=ONE_CALL).run_once() == 0
    assert await office.state(begun.id) == "SUPERSEDED"
    await office.post_one()
    assert await office.dispatcher(limits=ONE_CALL).run_once() == 1


# The segments of a number and day


async def test_a_number_gets_its_segments_of_a_day_from_all_labours_and_dispatchers_together(
    office: PostOffice,
) -> None:
    texts = await office.post(*(notification(event_type="labour.begun") for _ in range(12)))
    other = await office.post_one("+12025550199")
    limits = Limits(segments_per_number=5)

    await asyncio.gather(*(office.dispatcher(limits=limits, in_flight=4).run_once() for _ in range(6)))

    assert sorted(await states(office, texts)) == ["FAILED"] * 7 + ["SENT"] * 5
    assert await office.state(other.id) == "SENT"
    for one in texts:
        if await office.state(one.id) == "FAILED":
            assert (await office.row(one.id))["failure"] == TOO_MANY_TODAY
            assert await office.events(one.id) == ["notification.failed"]
    assert len(office.sms.sandbox.store.newest(PHONE, 100)) == 5


async def test_births_are_sent_up_to_twice_the_limit(office: PostOffice) -> None:
    limits = Limits(segments_per_number=2)
    announced = await office.post(*(notification(event_type="labour.announced") for _ in range(3)))
    await office.dispatcher(limits=limits).run_once()
    births = await office.post(*(notification(event_type="labour.completed") for _ in range(3)))
    await office.dispatcher(limits=limits).run_once()

    assert sorted(await states(office, announced)) == ["FAILED", "SENT", "SENT"]
    assert sorted(await states(office, births)) == ["FAILED", "SENT", "SENT"]


async def test_the_next_attempt_of_a_text_does_not_count_again(office: PostOffice) -> None:
    one = await office.post_one()
    limits = Limits(segments_per_number=1)
    office.fault("rate-limited", times=1)
    await office.dispatcher(limits=limits).run_once()
    assert await office.state(one.id) == "PENDING"

    await execute(office, "UPDATE notification SET next_attempt_at = now()")
    await office.dispatcher(limits=limits).run_once()

    assert await office.state(one.id) == "SENT"


async def test_a_day_ends_and_its_counts_are_deleted_in_batches(office: PostOffice) -> None:
    limits = Limits(segments_per_number=1)
    await office.post_one()
    assert await office.dispatcher(limits=limits).run_once() == 1
    await execute(office, "UPDATE number_day SET day = day - 1")
    await office.post_one()
    assert await office.dispatcher(limits=limits).run_once() == 1

    await execute(office, "INSERT INTO number_day SELECT '2026-11-01', 'n' || n, 1 FROM generate_series(1, 1500) AS n")
    async with office.units() as uow:
        assert [await ledger.forget_old_days(uow.connection) for _ in range(3)] == [1000, 501, 0]
        assert await uow.connection.fetchval("SELECT count(*) FROM number_day") == 1
