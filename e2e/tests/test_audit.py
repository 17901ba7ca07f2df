"""The auditor reports every inconsistency and nothing else. Each one is made by hand, in otherwise consistent data."""

import asyncio
import json
import re
import socket
import tracemalloc
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from click.testing import CliRunner, Result

from e2e.support.audit_data import (
    BEGUN,
    GRACE_ADDED,
    GRACE_HAS_IT,
    SENT_TO_GRACE,
    TO_ALAN,
    TO_GRACE,
    AuditedSystem,
    id_of,
)
from e2e.support.databases import connect
from fern.audit import arrival, auditor, reconciliation
from fern.commands.audit import audit as audit_command
from fern.dead_letters import DeadLetter
from messaging.bus import Message
from messaging.retention import first_id

N = 3  # the labour whose rows are changed


# A change to the rows of one labour (the service, and the SQL), and every finding that must follow: kind, stage, event, and the
# command unless it is `fern trace`. The numbers are those of audit_data.py: 4 to 6 are events of the Labour service, 7 and 8
# messages, 9 to 12 events of the Notification service.
CHANGES = """
labour: UPDATE outbox SET published_at = NULL WHERE event_id = '{6}' → late published 6: fern logs labour-relay
labour: UPDATE outbox SET published_at = NULL, parked_at = now() WHERE event_id = '{6}'
    → stuck published 6: fern outbox retry {6}
labour: UPDATE outbox SET published_at = NULL WHERE event_id = '{4}'
    → late published 4: fern logs labour-relay → out-of-order published 5 → out-of-order published 6
labour: UPDATE outbox SET published_at = published_at - interval '1 us' WHERE event_id = '{5}' → out-of-order published 5
labour: UPDATE outbox SET aggregate_version = 4 WHERE event_id = '{6}' → out-of-order published 6
notification: UPDATE outbox SET published_at = published_at + interval '1 s' WHERE event_id = '{9}' → out-of-order published 11
labour: DELETE FROM outbox WHERE event_id = '{6}' → unexplained claimed 6
notification: DELETE FROM processed_event WHERE event_id = '{6}'
    → lost claimed 6: fern replay --labour {1} --type labour.begun → unexplained effects 6
labour: DELETE FROM processed_event WHERE event_id = '{6}'
    → lost claimed 6: fern replay --labour {1} --type labour.begun → unexplained effects 6
labour: DELETE FROM statistics_posting WHERE event_id = '{6}'
    → lost effects 6 → unexplained effects 1: fern statistics rebuild
labour: UPDATE statistics_balance SET amount = amount + 1 WHERE labour_id = '{1}' AND what = 'contractions'
    → unexplained effects 1: fern statistics rebuild
labour: DELETE FROM processed_event WHERE event_id = '{9}' → lost claimed 9: fern replay --labour {1} --type notification.sent
notification: UPDATE processed_event SET status = 'PROCESSING' WHERE event_id = '{5}' → lost claimed 5
notification: DELETE FROM notification WHERE id = '{7}' → lost effects 6 → unexplained effects 1 → unexplained texts
notification: INSERT INTO notification
    (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments)
    SELECT '{50}', event_id, event_type, labour_id, '{51}', '', '', channel, '', 1 FROM notification WHERE id = '{7}'
    → unexplained effects 6
notification: UPDATE roster SET version = 1 WHERE labour_id = '{1}' → lost effects 5
notification: UPDATE roster SET version = 3 WHERE labour_id = '{1}' → unexplained effects 1
notification: DELETE FROM roster_member WHERE person_id = '{2}' → lost effects 4 → unexplained effects 6
labour: DELETE FROM told WHERE notification_id = '{7}' → lost effects 9 → lost effects 11
labour: UPDATE told SET status = 'sent', rank = 1 WHERE notification_id = '{7}' → lost effects 11
notification: UPDATE notification SET state = 'SENT' WHERE id = '{7}' → unexplained effects 6
notification: UPDATE notification SET sid = 'SM{7}' WHERE id = '{7}' → lost texts 6 → duplicated texts 6
notification: UPDATE notification SET state = 'FAILED', sid = NULL, failure_code = 21610 WHERE id = '{7}'
    → unexplained effects 6 → unexplained texts 6
notification: WITH older AS (UPDATE notification SET sequence = 1 WHERE id = '{7}')
    INSERT INTO notification
    (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments, sequence, state, sending_at)
    SELECT '{50}', event_id, event_type, labour_id, person_id, '', '', 'letter', '', 1, 2, 'FAILED', sending_at - interval '1 s'
    FROM notification WHERE id = '{7}'
    → lost effects 6 → out-of-order texts 6
notification: UPDATE notification SET state = 'SUPERSEDED', sid = NULL WHERE id = '{7}'
    → unexplained effects 6 → lost texts 6 → unexplained texts 6
notification: UPDATE notification SET state = 'IN_DOUBT', sid = NULL WHERE id = '{7}'
    → unexplained effects 6 → stuck texts 6: fern sms ls --state IN_DOUBT
notification: UPDATE notification SET consent_required = true WHERE id = '{7}' → unexplained texts 6
notification: INSERT INTO consent (phone, state, answered_at)
    SELECT phone, 'REFUSED', sending_at - interval '2 min' FROM notification WHERE id = '{7}'
    → unexplained texts 6
notification: INSERT INTO notification
    (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments, state)
    SELECT '{50}', event_id, event_type, labour_id, person_id, '', phone, 'letter', '', 1, 'AWAITING_CONSENT'
    FROM notification WHERE id = '{7}'
    → lost texts 6
notification: INSERT INTO notification
    (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments)
    SELECT new.id::uuid, '{4}', 'consent.requested', labour_id, person_id, '', phone, new.id, '', 1
    FROM notification, unnest(ARRAY['{50}', '{51}']) AS new (id) WHERE notification.id = '{7}'
    → duplicated texts 4
notification: WITH asked AS (INSERT INTO consent (phone, state) SELECT phone, 'ASKED' FROM notification WHERE id = '{7}')
    INSERT INTO notification
    (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments, state, created_at)
    SELECT new.id::uuid, event_id, type, labour_id, person_id, '', phone, new.id, '', 1, new.state, now() - age::interval
    FROM notification, (VALUES ('{50}', 'consent.requested', 'FAILED', '2 d'), ('{51}', 'consent.requested', 'UNDELIVERED', '0'),
        ('{52}', 'labour.begun', 'AWAITING_CONSENT', '0')) AS new (id, type, state, age) WHERE notification.id = '{7}'
    → lost effects 6 → stuck texts 6: fern sms ls --state UNDELIVERED
notification: UPDATE notification SET state = 'AWAITING_CONSENT', sid = NULL WHERE id = '{7}'
    → unexplained effects 6 → lost texts 6 → unexplained texts 6
"""


async def test_every_inconsistency_is_reported_with_its_event_and_a_command_and_nothing_else_is(
    system: AuditedSystem,
) -> None:
    """Each change is made to a labour of its own."""
    changes = dict(enumerate(re.sub(r"\n +", " ", CHANGES.strip()).splitlines(), start=5))
    expected, reported = dict[int, set[str]](), {n: set[str]() for n in changes}
    await system.fill(min(changes), max(changes))
    for n, change in changes.items():
        statement, *findings = change.format(*(id_of(what, n) for what in range(60))).split(" → ")
        service, _, sql = statement.partition(": ")
        await (system.labour if service == "labour" else system.notification).execute(sql)
        expected[n] = set(findings)

    account = await system.audit()

    for finding in account.findings:
        if finding.event_id.startswith("SM"):  # the text whose message is deleted
            [n] = [n for n, change in changes.items() if "DELETE FROM notification " in change]
            reported[n].add(f"{finding.kind} {finding.stage}")
            continue
        what, n = int(finding.event_id[15:18], 16), int(finding.event_id[-12:], 16)
        command = "" if finding.command.startswith("fern trace") else f": {finding.command}"
        reported[n].add(f"{finding.kind} {finding.stage} {what}{command}")
    assert reported == expected


async def test_consistent_data_adds_up(system: AuditedSystem) -> None:
    account = await system.audit(overdue=0)

    assert account.findings == []
    assert account.clean
    assert account.committed == account.published == 35
    assert account.claimed == account.effects == 40, "two consumers take labour.begun"
    assert account.texts == 10
    assert account.waiting == 0


async def test_an_event_from_a_clock_that_is_ahead_is_compared_too(system: AuditedSystem) -> None:
    future = first_id(datetime.now(UTC) + timedelta(days=120))
    for connection, table in ((system.labour, "outbox"), (system.notification, "notification")):
        await connection.execute(f"UPDATE {table} SET event_id = $1 WHERE event_id = $2", future, id_of(BEGUN, N))
    for connection in (system.labour, system.notification):
        await connection.execute("DELETE FROM processed_event WHERE event_id = $1", id_of(BEGUN, N))

    account = await system.audit()

    assert account.committed == 35
    assert [(finding.kind, finding.event_id) for finding in account.findings if finding.stage == "claimed"] == [
        ("lost", str(future))
    ] * 2, "for each of its consumers"


async def test_a_second_text_for_the_same_message_is_a_duplicate_and_a_foreign_one_is_unexplained(
    system: AuditedSystem,
) -> None:
    [(phone, body)] = await system.notification.fetch(
        "SELECT phone, body FROM notification WHERE id = $1", id_of(TO_ALAN, N)
    )

    await system.send(phone, body)
    await system.send(phone, "Hello? #ABCDEFGH")
    account = await system.audit()

    assert account.totals == {"duplicated": 1, "unexplained": 1}
    assert [finding.event_id for finding in account.findings if finding.kind == "duplicated"] == [str(id_of(BEGUN, N))]
    assert account.texts == 10, "each message still has its own"


async def test_a_message_whose_status_was_never_recorded_is_reported(system: AuditedSystem) -> None:
    for status in (SENT_TO_GRACE, GRACE_HAS_IT):
        await system.notification.execute("DELETE FROM outbox WHERE event_id = $1", id_of(status, N))
        await system.labour.execute("DELETE FROM processed_event WHERE event_id = $1", id_of(status, N))
    await system.labour.execute("DELETE FROM told WHERE notification_id = $1", id_of(TO_GRACE, N))

    account = await system.audit()

    assert [(finding.kind, finding.stage, finding.event_id) for finding in account.findings] == [
        ("lost", "effects", str(id_of(BEGUN, N)))
    ]


async def test_a_dead_letter_is_stuck_and_what_an_operator_discarded_is_only_counted(system: AuditedSystem) -> None:
    for n in (1, 2, N):
        await system.undo_beginning(n)
    discard = "UPDATE outbox SET published_at = NULL, discarded_at = now() WHERE event_id = $1"
    await system.labour.execute(discard, id_of(BEGUN, 1))
    give_up = "INSERT INTO processed_event (consumer, event_id, status) VALUES ('notification', $1, 'DISCARDED')"
    await system.notification.execute(give_up, id_of(BEGUN, 2))

    async def dead() -> AsyncIterator[DeadLetter]:
        message = Message("labour.begun.dlq", "", "1", b"", {}, 0)
        yield DeadLetter(message, "labour.begun", "notification", "wrong-schema", str(id_of(BEGUN, N)), "labour.begun")

    account = await system.audit(dead())

    assert (account.discarded, account.given_up, account.dead) == (1, 1, 1)
    assert [(finding.kind, finding.event_id, finding.command) for finding in account.findings] == [
        ("stuck", str(id_of(BEGUN, N)), f"fern dlq redrive --event {id_of(BEGUN, N)}")
    ]


async def test_an_event_that_is_committed_and_claimed_between_two_queries_is_no_unexplained_claim(
    system: AuditedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    late = str(id_of(BEGUN, N))
    await system.labour.execute(f"CREATE TABLE kept_back AS SELECT * FROM outbox WHERE event_id = '{late}'")
    await system.labour.execute("DELETE FROM outbox WHERE event_id = $1", late)
    judge = arrival.judge_publishing

    async def commit() -> None:
        labour = await connect(system.urls["labour"])
        await labour.execute("INSERT INTO outbox OVERRIDING SYSTEM VALUE SELECT * FROM kept_back")
        await labour.close()

    def judge_late(*arguments: Any) -> None:
        """Between the query of the outbox and that of the claims."""
        monkeypatch.setattr(reconciliation, "judge_publishing", judge)
        with ThreadPoolExecutor(1) as elsewhere:
            elsewhere.submit(asyncio.run, commit()).result()
        judge(*arguments)

    monkeypatch.setattr(reconciliation, "judge_publishing", judge_late)
    account = await system.audit()

    assert account.clean, account.findings


async def test_rows_that_retention_has_deleted_are_not_missed(system: AuditedSystem) -> None:
    for connection in (system.labour, system.notification):
        await connection.execute("DELETE FROM outbox WHERE recorded_at < moment(2)")

    account = await system.audit()

    assert account.clean, account.findings
    assert account.committed == 21


async def test_neither_a_replay_nor_the_status_of_different_messages_has_an_order(system: AuditedSystem) -> None:
    late = "UPDATE outbox SET published_at = published_at + interval '1 s' WHERE event_id = ANY($1)"
    await system.notification.execute(late, [id_of(SENT_TO_GRACE, N), id_of(GRACE_HAS_IT, N)])
    replay = "UPDATE outbox SET replayed_at = now(), published_at = now() WHERE event_id = $1"
    await system.labour.execute(replay, id_of(GRACE_ADDED, N))

    account = await system.audit()

    assert account.clean, account.findings


def run(system: AuditedSystem, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """The command line, without a bus."""
    for service, url in system.urls.items():
        monkeypatch.setenv(f"{service.upper()}_DATABASE_URL", url)
    monkeypatch.setenv("TWILIO_BASE_URL", system.sms.url)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    return CliRunner().invoke(audit_command, arguments)


async def test_the_command_exits_with_0_if_all_adds_up_with_26_if_it_is_late_with_20_if_not_and_prints_no_personal_data(
    system: AuditedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = await asyncio.to_thread(run, system, monkeypatch)
    await system.labour.execute("UPDATE outbox SET published_at = NULL WHERE event_id = $1", id_of(BEGUN, 1))
    late = await asyncio.to_thread(run, system, monkeypatch)
    await system.labour.execute(
        "UPDATE outbox SET published_at = recorded_at + interval '5 ms' WHERE event_id = $1", id_of(BEGUN, 1)
    )
    await system.notification.execute("DELETE FROM notification WHERE id = $1", id_of(TO_GRACE, N))
    broken = await asyncio.to_thread(run, system, monkeypatch)
    for_programs = await asyncio.to_thread(run, system, monkeypatch, "--json")

    assert well.exit_code == 0, well.output
    assert "clean" in well.stdout
    assert late.exit_code == 26, late.output
    assert "nothing is lost, and 1 events or texts are late" in late.stderr
    assert broken.exit_code == for_programs.exit_code == 20
    assert f"fern trace {id_of(BEGUN, N)}" in broken.stdout
    assert "dead letters" in broken.stderr, "the bus does not answer"
    found = json.loads(for_programs.stdout)
    assert found["clean"] is False
    assert found["totals"] == {"lost": 1, "unexplained": 2}
    for output in (well.output, late.output, broken.output, for_programs.output):
        assert "Grace" not in output
        assert "+12" not in output
        assert "in labour" not in output


async def test_without_a_database_the_command_exits_with_19(
    system: AuditedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))  # and does not listen
        system.urls["labour"] = f"postgresql://labour:labour@127.0.0.1:{bound.getsockname()[1]}/labour"

        silent = await asyncio.to_thread(run, system, monkeypatch)

    assert silent.exit_code == 19, silent.output
    assert "does not answer" in silent.stderr


async def test_memory_does_not_grow_with_the_number_of_events(
    system: AuditedSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (reconciliation, auditor):
        monkeypatch.setattr(module, "CHUNK", 400)
    monkeypatch.setattr(auditor, "PAGE", 200)

    async def peak() -> int:
        tracemalloc.start()
        try:
            account = await system.audit()
            return tracemalloc.get_traced_memory()[1]
        finally:
            tracemalloc.stop()
            assert account.clean, account.findings

    await system.fill(5, 500)
    few = await peak()
    await system.fill(501, 4000)  # in all, 28,000 events, 24,000 claims, 8,000 messages and as many texts
    many = await peak()

    assert many < 2 * few, "eight times as many events, and no more memory"
