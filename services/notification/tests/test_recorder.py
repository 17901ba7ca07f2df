"""Outcomes that arrive together are recorded together, each for itself: a bad or a late one affects no other."""

import asyncio
from collections import Counter

from structlog.testing import capture_logs

from e2e.support.crash import SimulatedCrash
from notification.delivery import ledger, recorder
from notification.delivery.recorder import Recorder
from notification.delivery.twilio import OPTED_OUT, Accepted, NotSent, PermanentlyRefused, SendOutcome, Unknown
from notification.domain.notification import Lease

from .sms_parts import PostOffice, held_at

SIDS = [f"SM{number:032}" for number in range(100)]


async def leased(office: PostOffice, count: int) -> list[Lease]:
    await office.post_many(count)
    async with office.units() as uow:
        return (await ledger.take(uow, limit=count, lease_seconds=60, call_within=10)).leases


async def transactions(office: PostOffice) -> Counter[str]:
    """How many rows each transaction was the last to write."""
    async with office.units() as uow:
        return Counter(row[0] for row in await uow.connection.fetch("SELECT xmin::text FROM notification"))


async def states(office: PostOffice, leases: list[Lease]) -> list[str]:
    return [await office.state(lease.id) for lease in leases]


async def record_while_one_is_written(office: PostOffice, outcomes: list[tuple[Lease, SendOutcome]]) -> list[object]:
    """Holds the transaction of the first outcome until all the others have arrived; returns what each of them led to."""
    ours = Recorder(office.units, wake=lambda: None)
    (first, outcome), *others = outcomes
    async with held_at(recorder.AFTER_RECORD, ours.record(first, outcome)):
        waiting = [asyncio.create_task(ours.record(lease, other)) for lease, other in others]
        await asyncio.sleep(0)  # each has handed in its outcome
    return list(await asyncio.gather(*waiting, return_exceptions=True))


async def test_each_transaction_has_a_log_line_at_info_and_so_has_each_message_that_was_not_accepted(
    office: PostOffice,
) -> None:
    first, *leases = await leased(office, 5)
    late = leases[3]._replace(attempt=2)
    outcomes: list[SendOutcome] = [Accepted(SIDS[1]), Accepted(SIDS[2]), Unknown("no answer"), Accepted(SIDS[3])]
    group = list(zip([*leases[:3], late], outcomes, strict=True))

    with capture_logs() as logs:
        await record_while_one_is_written(office, [(first, Accepted(SIDS[0])), *group])

    infos = [line for line in logs if line["log_level"] == "info"]
    counted = [line for line in infos if line["event"] == "sms outcomes recorded"]
    assert [(line["accepted"], line.get("unknown")) for line in counted] == [(1, None), (3, 1)]
    assert [(line["event"], line["notification_id"]) for line in infos if line not in counted] == [
        ("sms attempted", str(leases[2].id)),
        ("late sms outcome ignored", str(late.id)),
    ]
    named = [line["notification_id"] for line in logs if line["log_level"] == "debug" and "sid" in line]
    assert named == [str(lease.id) for lease in (first, *leases[:2])]


async def test_what_arrives_while_one_is_written_is_written_in_one_transaction(office: PostOffice) -> None:
    leases = await leased(office, 10)
    outcomes: list[SendOutcome] = [Accepted(sid) for sid in SIDS[:8]]
    outcomes += [PermanentlyRefused(OPTED_OUT, "opted out"), Unknown("no answer")]

    ours = await record_while_one_is_written(office, list(zip(leases, outcomes, strict=True)))

    assert ours == [True] * 9
    assert sorted((await transactions(office)).values()) == [1, 9]
    assert await states(office, leases) == ["SENT"] * 8 + ["FAILED", "IN_DOUBT"]
    assert [(await office.row(lease.id))["sid"] for lease in leases[:8]] == SIDS[:8]
    assert [await office.events(lease.id) for lease in leases] == [
        *[["notification.sent"]] * 8,
        ["notification.failed"],
        [],
    ]
    assert await office.suppressed() == {leases[8].phone}


async def test_a_late_outcome_among_others_changes_nothing_and_stops_none(office: PostOffice) -> None:
    leases = await leased(office, 4)
    late = leases[2]._replace(attempt=0)

    outcomes = [(lease, Accepted(SIDS[0])) for lease in (leases[0], leases[1], late, leases[3])]
    assert await record_while_one_is_written(office, list(outcomes)) == [True, False, True]

    assert await states(office, leases) == ["SENT", "SENT", "SENDING", "SENT"]
    assert await office.events(late.id) == []


async def test_an_outcome_that_cannot_be_stored_costs_only_itself(office: PostOffice) -> None:
    leases = await leased(office, 4)

    results = await record_while_one_is_written(
        office,
        [
            (leases[0], Accepted(SIDS[0])),
            (leases[1], Accepted(SIDS[1])),
            (leases[2], Accepted("SM\0")),  # PostgreSQL stores no such text
            (leases[3], NotSent("busy", 1.0)),
        ],
    )

    assert (results[0], isinstance(results[1], Exception), results[2]) == (True, True, True)
    assert await states(office, leases) == ["SENT", "SENT", "SENDING", "PENDING"]
    assert await office.events(leases[1].id) == ["notification.sent"]


async def test_two_outcomes_of_one_message_are_recorded_in_the_order_they_came(office: PostOffice) -> None:
    first, second = await leased(office, 2)

    ours = await record_while_one_is_written(
        office, [(first, Accepted(SIDS[0])), (second, Accepted(SIDS[1])), (second, Unknown("stopped"))]
    )

    assert ours == [True, False]
    assert (await office.row(second.id))["sid"] == SIDS[1]


async def test_an_outcome_is_recorded_even_if_the_task_that_waits_for_it_is_cancelled(office: PostOffice) -> None:
    first, second = await leased(office, 2)
    ours = Recorder(office.units, wake=lambda: None)

    async with held_at(recorder.AFTER_RECORD, ours.record(first, Accepted(SIDS[0]))):
        cancelled = asyncio.create_task(ours.record(second, Accepted(SIDS[1])))
        await asyncio.sleep(0)
        cancelled.cancel()
        await asyncio.wait([cancelled])

    assert await ours.record(second, Unknown("stopped")) is False
    assert await states(office, [first, second]) == ["SENT", "SENT"]


async def test_after_a_crash_before_the_commit_none_of_the_set_is_recorded(office: PostOffice) -> None:
    first, *others = await leased(office, 3)
    ours, reached, arrived = Recorder(office.units, wake=lambda: None), asyncio.Event(), asyncio.Event()

    async def crash_at_the_second_transaction() -> None:
        if reached.is_set():
            raise SimulatedCrash
        reached.set()
        await arrived.wait()

    recorder.AFTER_RECORD.arm(crash_at_the_second_transaction)
    recording = [asyncio.create_task(ours.record(first, Accepted(SIDS[0])))]
    await reached.wait()
    recording += [asyncio.create_task(ours.record(lease, Accepted(SIDS[1]))) for lease in others]
    await asyncio.sleep(0)  # each has handed in its outcome
    arrived.set()
    written, *crashed = await asyncio.gather(*recording, return_exceptions=True)

    assert written is True
    assert [type(result) for result in crashed] == [SimulatedCrash, SimulatedCrash]
    assert await states(office, [first, *others]) == ["SENT", "SENDING", "SENDING"]
    assert [await office.events(lease.id) for lease in (first, *others)] == [["notification.sent"], [], []]
