"""Answers and consumers at the same time, on connections of their own.

In no order do they text a number that has not agreed, lose a text, ask twice or deadlock. A crash in the middle of an answer
leaves everything as if the answer had not come.
"""

import asyncio
import random
from collections.abc import Coroutine
from typing import Any

import pytest

from e2e.support.crash import SimulatedCrash, crash_at
from e2e.support.waiting import eventually
from messaging import unit_of_work
from messaging.faults import FaultPoint
from notification.delivery import dispatcher

from .consent_parts import ASKED, Course, consent_of, handle, on_the_phone, react, send_all, states
from .sms_parts import PHONE, PostOffice, held_at

BEGUN = "FernLabour: Ada is in labour. We will tell you when the baby is here. Reply STOP to stop."
WAITING_FOR_A_LOCK = "SELECT count(*) FROM pg_locks WHERE NOT granted"


async def until_it_waits(office: PostOffice, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Starts `work` and returns once it waits for a lock that another transaction has."""
    task = asyncio.create_task(work)
    async with office.units() as uow:
        await eventually(lambda: uow.connection.fetchval(WAITING_FOR_A_LOCK), lambda count: count == 1)
    assert not task.done()
    return task


async def asked(office: PostOffice, *, mother: str = "Ada") -> Course:
    course = Course(mother)
    await handle(office, course.add())
    await send_all(office)
    return course


async def test_a_yes_waits_for_the_consumer_that_is_inserting_a_waiting_text_and_releases_it(
    office: PostOffice,
) -> None:
    course = await asked(office)

    async with office.units() as uow:
        await react(uow, course.begin())
        answer = await until_it_waits(office, office.reply("YES"))
    await answer
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BEGUN]


async def test_a_consumer_waits_for_the_yes_that_is_being_applied_and_sees_it(office: PostOffice) -> None:
    course = await asked(office)

    async with held_at(unit_of_work.BEFORE_COMMIT, office.reply("YES")):
        consumer = await until_it_waits(office, handle(office, course.begin()))
    await consumer

    assert (await states(office))[-1] == ("labour.begun", "PENDING")
    await send_all(office)
    assert on_the_phone(office) == [ASKED.format("Ada"), BEGUN]


async def test_a_stop_waits_for_the_consumer_that_is_inserting_a_waiting_text_and_drops_it(office: PostOffice) -> None:
    course = await asked(office)

    async with office.units() as uow:
        await react(uow, course.begin())
        answer = await until_it_waits(office, office.reply("STOP"))
    await answer

    assert (await states(office))[-1] == ("labour.begun", "FAILED")


async def test_two_consumers_that_add_one_number_at_once_ask_it_once(office: PostOffice) -> None:
    ada, eve = Course("Ada"), Course("Eve")

    async with office.units() as uow:
        await react(uow, ada.add())
        second = await until_it_waits(office, handle(office, eve.add(), eve.begin()))
    await second
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    assert (await states(office))[-1] == ("labour.begun", "AWAITING_CONSENT")


async def test_if_the_consumer_that_was_asking_rolls_back_the_other_one_asks(office: PostOffice) -> None:
    async def ask_and_fail() -> None:
        async with office.units() as uow:
            await react(uow, Course("Ada").add())
            second.append(await until_it_waits(office, handle(office, Course("Eve").add())))
            raise SimulatedCrash

    second = list[asyncio.Task[None]]()
    with pytest.raises(SimulatedCrash):
        await ask_and_fail()
    await second[0]
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Eve")]


async def test_consumers_with_the_same_numbers_in_any_order_do_not_deadlock(office: PostOffice) -> None:
    """A deadlock would fail one of them: nothing here tries again."""
    phones = [f"+120255501{number:02}" for number in range(20)]
    courses = [Course(f"Mother {number}") for number in range(6)]

    def batch(course: Course, shuffled: random.Random) -> list[Any]:
        return [course.add(phone) for phone in shuffled.sample(phones, len(phones))]

    batches = [batch(course, random.Random(number)) for number, course in enumerate(courses)]
    await asyncio.gather(*(handle(office, *events) for events in batches))

    asked = [event for event, _ in await states(office)]
    assert asked == ["consent.requested"] * len(phones)


async def test_a_stop_after_yes_does_not_undo_a_call_under_way_and_holds_for_the_next_text(office: PostOffice) -> None:
    course = await asked(office)
    await office.reply("YES")
    await handle(office, course.begin())

    async with held_at(dispatcher.AFTER_TAKE, office.dispatcher().run_once()):
        await office.reply("STOP")
    await handle(office, course.complete())
    await send_all(office)

    assert [state for _, state in await states(office)] == ["SENT", "SENT", "FAILED"]
    assert await consent_of(office) == "REFUSED"


async def test_a_stop_that_comes_while_a_text_is_in_the_queue_is_seen_when_it_is_taken(office: PostOffice) -> None:
    course = await asked(office)
    await office.reply("YES")
    await handle(office, course.begin())

    await office.reply("STOP")
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]


async def test_yes_and_stop_at_once_leave_what_the_later_one_says(office: PostOffice) -> None:
    course = await asked(office)
    await handle(office, course.begin())

    async with held_at(unit_of_work.BEFORE_COMMIT, office.reply("YES")):
        stop = await until_it_waits(office, office.reply("STOP"))
    await stop
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada")]
    assert (await consent_of(office), (await states(office))[-1]) == ("REFUSED", ("labour.begun", "FAILED"))


async def test_a_yes_and_the_end_of_the_wait_settle_each_text_once(office: PostOffice) -> None:
    course = await asked(office)
    await handle(office, course.begin())

    async with held_at(unit_of_work.BEFORE_COMMIT, office.reply("YES")):
        await office.reconciler(consent_within=0.0).run_once()  # skips what the answer has locked
    await send_all(office)

    assert on_the_phone(office) == [ASKED.format("Ada"), BEGUN]


@pytest.mark.parametrize("point", [unit_of_work.AFTER_WRITE, unit_of_work.BEFORE_COMMIT])
@pytest.mark.parametrize("answer", ["YES", "STOP"])
async def test_a_crash_during_an_answer_leaves_consent_and_texts_as_they_were_and_the_answer_can_come_again(
    office: PostOffice, point: FaultPoint, answer: str
) -> None:
    """There is no point between the answer and what it releases: they are one transaction."""
    course = await asked(office)
    await handle(office, course.begin(), course.complete())
    before = await states(office)

    with crash_at(point):
        await office.reply(answer)
    assert (await consent_of(office), await states(office)) == ("ASKED", before)

    await office.reply(answer)
    await send_all(office)
    assert len(on_the_phone(office, PHONE)) == (2 if answer == "YES" else 1)
