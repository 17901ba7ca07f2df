"""Slots are handed on in the order of arrival, and none is lost, whatever happens to the requests that wait."""

import asyncio

import pytest

from servicekit.http.admission import LONG_PAUSE, SHORT_PAUSE, WINDOW, RetryAfter, Slots

LONG = 3600.0


async def waiting(slots: Slots) -> asyncio.Task[bool]:
    """A request that waits in the queue."""
    task = asyncio.create_task(slots.wait())
    await asyncio.sleep(0)
    assert not task.done()
    return task


async def test_those_who_wait_get_their_slot_in_the_order_of_arrival() -> None:
    slots = Slots(1, queue=2, seconds=LONG)
    assert slots.take()
    first, second = await waiting(slots), await waiting(slots)

    slots.give_back()

    assert await first
    assert not second.done()
    assert not slots.take()  # a new request does not overtake
    slots.give_back()
    assert await second
    slots.give_back()
    assert slots.take()


async def test_a_full_queue_refuses_at_once_and_has_room_again_after_a_time_out() -> None:
    slots = Slots(1, queue=1, seconds=0)
    slots.take()
    timed_out = asyncio.create_task(slots.wait())
    await asyncio.sleep(0)

    assert not await slots.wait()  # the queue is full
    assert not await timed_out
    assert not await slots.wait()  # it had room, and the time was over
    slots.give_back()
    assert slots.take()


@pytest.mark.parametrize("handed_over", [False, True])
async def test_a_request_that_is_cancelled_while_it_waits_takes_no_slot_with_it(handed_over: bool) -> None:
    slots = Slots(1, queue=2, seconds=LONG)
    slots.take()
    cancelled, next_one = await waiting(slots), await waiting(slots)

    if handed_over:
        slots.give_back()  # to the first one, which is cancelled before it runs again
    cancelled.cancel()
    with pytest.raises(asyncio.CancelledError):
        await cancelled
    if not handed_over:
        slots.give_back()

    assert await next_one
    slots.give_back()
    assert slots.take()
    assert not slots.take()


def test_the_more_requests_are_refused_the_longer_clients_are_asked_to_wait() -> None:
    retry_after, now = RetryAfter(), 100.0
    retry_after.draw(now)

    def longest_after(*, admitted: int, refused: int) -> int:
        """The longest pause after a window with these numbers of requests."""
        nonlocal now
        retry_after.admitted += admitted
        assert all(1 <= retry_after.draw(now) <= retry_after.longest for _ in range(refused - 1))
        now += WINDOW
        retry_after.draw(now)  # the last of this window, and the beginning of the next
        return retry_after.longest

    assert longest_after(admitted=400, refused=10) == SHORT_PAUSE
    assert longest_after(admitted=400, refused=401) == 2 * SHORT_PAUSE
    assert longest_after(admitted=0, refused=1000) == LONG_PAUSE
    assert longest_after(admitted=0, refused=1000) == LONG_PAUSE
    assert longest_after(admitted=400, refused=100) == LONG_PAUSE
    assert longest_after(admitted=400, refused=99) == LONG_PAUSE // 2
    retry_after.draw(now + 2 * WINDOW)  # after a window without a refusal
    assert retry_after.longest == SHORT_PAUSE
