"""What has not arrived: the auditor tells what is on its way, late, stuck and lost from each other."""

import pytest

from e2e.support.audit_data import ALAN_ADDED, BEGUN, TO_GRACE, AuditedSystem, id_of
from e2e.support.bus import apply_topology
from fern.audit import auditor
from messaging.bus import Outgoing
from messaging.pubsub import PubSub

N = 3  # the labour whose rows are changed


async def test_an_event_that_is_being_processed_is_reported_only_when_it_is_overdue(system: AuditedSystem) -> None:
    await system.undo_beginning(N)
    await system.labour.execute("UPDATE outbox SET published_at = now() WHERE event_id = $1", id_of(BEGUN, N))

    in_time = await system.audit(overdue=60)
    too_late = await system.audit(overdue=0)

    assert in_time.clean, in_time.findings
    assert in_time.waiting == 1
    assert [(finding.kind, finding.event_id) for finding in too_late.findings] == [("lost", str(id_of(BEGUN, N)))]


async def test_an_event_that_the_bus_still_has_is_late_and_lost_once_the_bus_has_nothing(
    system: AuditedSystem, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", system.bus.target)
    await apply_topology(project, {"labour.begun": ["notification"], "labour.completed": ["notification"]})
    bus = PubSub(project)
    await system.undo_beginning(N)
    publish = "UPDATE outbox SET published_at = now() - interval '1 day' WHERE event_id = $1"
    await system.labour.execute(publish, id_of(BEGUN, N))
    await bus.publish("labour.completed", [Outgoing(b"{}", {})])  # of another subscription: it can bring nothing

    not_there = await system.audit(overdue=0)
    await bus.publish("labour.begun", [Outgoing(b"{}", {})])
    waiting = await system.audit(overdue=0)
    [message] = await bus.pull("notification.labour.begun", 1, wait=10)
    leased = await system.audit(overdue=0)
    flowing = await system.audit(overdue=3600)  # its oldest message is younger than that, so it cannot have the event
    await bus.acknowledge("notification.labour.begun", [message.ack_id])
    gone = await system.audit(overdue=0)
    await bus.close()

    assert [report.totals for report in (not_there, waiting, leased, flowing, gone)] == [
        {"lost": 1},
        {"late": 1},
        {"late": 1},
        {"lost": 1},
        {"lost": 1},
    ]
    assert waiting.only_late
    assert "notification.labour.begun has 1 unacknowledged messages, 0 of them leased" in waiting.findings[0].what
    assert "1 of them leased" in leased.findings[0].what
    assert waiting.stages["claimed"].adds_up


async def test_without_an_answer_of_the_bus_an_event_is_late_for_as_long_as_a_message_is_kept(
    system: AuditedSystem,
) -> None:
    for n, age in ((1, "6 days"), (2, "8 days")):
        await system.undo_beginning(n)
        publish = f"UPDATE outbox SET published_at = now() - interval '{age}' WHERE event_id = $1"
        await system.labour.execute(publish, id_of(BEGUN, n))

    report = await auditor.audit(system.urls, sandbox=system.sms.url, bus="http://127.0.0.1:1")

    assert {(finding.kind, finding.event_id) for finding in report.findings if finding.stage == "claimed"} == {
        ("late", str(id_of(BEGUN, 1))),
        ("lost", str(id_of(BEGUN, 2))),
    }


async def test_a_row_of_the_outbox_says_why_it_is_late(system: AuditedSystem) -> None:
    for n in (1, 2, N):
        await system.undo_beginning(n)
    waits = "UPDATE outbox SET published_at = NULL, recorded_at = now() - interval '200 s'"
    await system.labour.execute(f"{waits} WHERE event_id = $1", id_of(BEGUN, 1))
    rejected = f"{waits}, attempts = 3, last_error = 'NOT_FOUND: topic', next_attempt_at = now() + interval '90 s'"
    await system.labour.execute(f"{rejected} WHERE event_id = $1", id_of(BEGUN, 2))
    await system.labour.execute(f"{waits} WHERE event_id = $1", id_of(BEGUN, N))
    await system.labour.execute(f"{waits}, parked_at = now() WHERE event_id = $1", id_of(ALAN_ADDED, N))

    report = await system.audit(overdue=120)

    reasons = {finding.event_id: finding.what for finding in report.findings if finding.kind == "late"}
    assert reasons.keys() == {str(id_of(BEGUN, n)) for n in (1, 2, N)}
    assert "for 200 s: it waits for a relay, or for the bus" in reasons[str(id_of(BEGUN, 1))]
    assert "the bus rejected it 3 times (NOT_FOUND); next attempt in" in reasons[str(id_of(BEGUN, 2))]
    assert "an earlier event of its labour is parked" in reasons[str(id_of(BEGUN, N))]


async def test_a_message_that_the_dispatcher_will_still_send_is_late(system: AuditedSystem) -> None:
    unsettle = """
        UPDATE notification SET state = $2, sid = NULL, created_at = now() - interval '200 s', in_doubt_at = $3
        WHERE id = $1"""
    for n, state in ((1, "PENDING"), (2, "SENDING"), (N, "IN_DOUBT")):
        await system.notification.execute(unsettle, id_of(TO_GRACE, n), state, None)

    report = await system.audit(overdue=120)

    late = {finding.event_id: finding.command for finding in report.findings if finding.kind == "late"}
    assert late == {
        str(id_of(BEGUN, n)): f"fern sms ls --state {state}"
        for n, state in ((1, "PENDING"), (2, "SENDING"), (N, "IN_DOUBT"))
    }
    assert not [finding for finding in report.findings if finding.kind in ("lost", "stuck")]


async def test_a_dead_letter_that_another_command_is_looking_at_makes_its_event_late_and_not_lost(
    system: AuditedSystem, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", system.bus.target)
    await apply_topology(project, {"labour.begun": ["notification"]})
    bus = PubSub(project)
    await system.undo_beginning(N)
    publish = "UPDATE outbox SET published_at = now() - interval '1 day' WHERE event_id = $1"
    await system.labour.execute(publish, id_of(BEGUN, N))

    await bus.publish("labour.begun.dlq", [Outgoing(b"{}", {})])
    report = await system.audit()
    await bus.close()

    assert report.totals == {"late": 1}
    assert "another command is looking at" in report.findings[0].what
