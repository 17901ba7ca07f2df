"""The auditor names what is broken, and nothing else. Each break is made by hand, in books that are in order otherwise."""

import asyncio
import json
import socket
import threading
import time
import tracemalloc
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import md5
from pathlib import Path
from uuid import UUID

import asyncpg
import httpx
import pytest
from click.testing import CliRunner, Result

from e2e.world import COMPLETE, World
from fern import audit as auditor
from fern import reconciliation
from fern.account import Account, Finding
from fern.audit import audit, audit_command
from fern.dlq import DeadLetter
from fern.sms import Address, running
from fern.sms.message import Message as Text
from messaging.pubsub import Message

ACCOUNT = "AC" + 32 * "0"
BEGAN = int(time.time() * 1000) - 7 * 86_400_000  # a week ago: a labour a second since then

# What was made for the n-th labour, in this order: the second column of the ids.
LABOUR, GRACE, ALAN, GRACE_ADDED, ALAN_ADDED, BEGUN, TO_GRACE, TO_ALAN = range(1, 9)
SENT_TO_GRACE, SENT_TO_ALAN, GRACE_HAS_IT, ALAN_HAS_IT = range(9, 13)


def made(what: int, n: int) -> UUID:
    """A UUIDv7 that Python and both databases agree on."""
    return UUID(f"{BEGAN + n * 1000:012x}7{what:03x}8{n:015x}")


MADE = f"""
    CREATE FUNCTION made(what int, n int) RETURNS uuid IMMUTABLE LANGUAGE sql RETURN (
        lpad(to_hex({BEGAN} + n * 1000::bigint), 12, '0') || '7' || lpad(to_hex(what), 3, '0') || '8'
        || lpad(to_hex(n), 15, '0'))::uuid;
    CREATE FUNCTION moment(n int) RETURNS timestamptz IMMUTABLE LANGUAGE sql RETURN
        to_timestamp({BEGAN} / 1000.0 + n);
"""

LABOUR_BOOKS = """
    INSERT INTO labour (id, mother_id, mother_name, first_labour, phase, planned_at, begun_at, roster_version, version)
    SELECT made(1, n), 'ada-' || n, 'Ada', true, 'early', moment(n), moment(n), 2, 3 FROM generate_series({0}, {1}) AS n;

    INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, recorded_at, published_at,
        aggregate_version)
    SELECT made(what, n), topic, made(1, n)::text, 0, '{{}}',
        jsonb_build_object('labour_id', made(1, n), 'roster_version', roster_version, 'person_id', made(who, n))::text,
        moment(n), moment(n), moment(n) + interval '5 ms', what
    FROM generate_series({0}, {1}) AS n, (VALUES
        (4, 'subscriber.added', 1, 2), (5, 'subscriber.added', 2, 3), (6, 'labour.begun', 2, 0)
    ) AS event (what, topic, roster_version, who) ORDER BY n, what;

    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT 'labour', made(what, n), 'COMPLETED', moment(n) FROM generate_series({0}, {1}) AS n, generate_series(9, 12) AS what;

    INSERT INTO told (notification_id, labour_id, person_id, event_id, event_type, channel, news, rank, at)
    SELECT made(what, n), made(1, n), made(what - 5, n), made(6, n), 'labour.begun', 'sms', 'delivered', 2, moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(7, 8) AS what;
"""

NOTIFICATION_BOOKS = """
    INSERT INTO roster SELECT made(1, n), 2 FROM generate_series({0}, {1}) AS n;

    INSERT INTO roster_member (labour_id, person_id, name, phone, added_version)
    SELECT made(1, n), made(who, n), 'Grace', '+1' || 2000000000 + 2 * n + who, who - 1
    FROM generate_series({0}, {1}) AS n, generate_series(2, 3) AS who;

    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT 'notification', made(what, n), 'COMPLETED', moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(4, 6) AS what;

    INSERT INTO notification (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments, state,
        attempt, sid, created_at, sending_at, sent_at, delivered_at)
    SELECT id, made(6, n), 'labour.begun', made(1, n), made(what - 5, n), 'Grace', '+1' || 2000000000 + 2 * n + what - 5, 'sms',
        'Ada is in labour. #' || right(md5(id::text), 8), 1, 'DELIVERED', 1, 'SM' || md5(id::text),
        moment(n), moment(n), moment(n), moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(7, 8) AS what, LATERAL (SELECT made(what, n) AS id) AS message;

    INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, recorded_at, published_at)
    SELECT made(what, n), CASE WHEN what < 11 THEN 'notification.sent' ELSE 'notification.delivered' END,
        made(1, n)::text, 0, '{{}}',
        jsonb_build_object('labour_id', made(1, n), 'notification_id', made(7 + (what - 9) % 2, n), 'cause_id', made(6, n))::text,
        moment(n), moment(n), moment(n) + interval '5 ms'
    FROM generate_series({0}, {1}) AS n, generate_series(9, 12) AS what ORDER BY n, what;
"""


@dataclass
class System:
    """Both services' databases and the provider, with labours that were begun and of which two people know."""

    urls: dict[str, str]
    labour: asyncpg.Connection
    notification: asyncpg.Connection
    sms: Address

    async def fill(self, first: int, last: int) -> None:
        await self.labour.execute(LABOUR_BOOKS.format(first, last))
        await self.notification.execute(NOTIFICATION_BOOKS.format(first, last))
        sent = await self.notification.fetch(
            "SELECT sid, phone, body FROM notification WHERE id >= $1 AND id <= $2", made(0, first), made(999, last)
        )
        with self.sms.sandbox.store.transaction():
            for row in sent:
                self.sms.sandbox.store.save(
                    Text(
                        row["sid"],
                        ACCOUNT,
                        row["phone"],
                        "+15005550006",
                        None,
                        row["body"],
                        1,
                        "outbound-api",
                        "delivered",
                        0,
                        0,
                    )
                )

    async def audit(self, dead_letters: AsyncIterator[DeadLetter] | None = None, overdue: float = 60) -> Account:
        return await audit(self.urls, sandbox=self.sms.url, dead_letters=dead_letters, overdue_seconds=overdue)

    async def send(self, phone: str, body: str) -> None:
        """As anyone could, past our ledger."""
        form = {"To": phone, "From": "+15005550006", "Body": body}
        async with httpx.AsyncClient(base_url=self.sms.url, auth=(ACCOUNT, "token"), trust_env=False) as provider:
            (await provider.post(f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json", data=form)).raise_for_status()


@pytest.fixture
async def system(labour_url: str, notification_url: str, tmp_path: Path) -> AsyncIterator[System]:
    urls = {"labour": labour_url, "notification": notification_url}
    labour, notification = [await asyncpg.connect(url.replace("+asyncpg", "")) for url in urls.values()]
    async with running(tmp_path / "sms") as sms:
        system = System(urls, labour, notification, sms)
        for connection in (labour, notification):
            await connection.execute(MADE)
        await system.fill(0, 4)
        yield system
    await labour.close()
    await notification.close()


N = 3  # of the five labours, the one in whose books we meddle


@dataclass(frozen=True)
class Break:
    """What is done to a service's database, and what the auditor must say. `{6}` is the event of that number."""

    service: str
    sql: str
    kind: str
    stage: str
    event: int
    command: str = "fern trace {event}"


BREAKS = [
    Break(
        "labour",
        "UPDATE outbox SET published_at = NULL WHERE event_id = '{6}'",
        "stuck",
        "published",
        6,
        "fern logs labour-relay",
    ),
    Break(
        "labour",
        "UPDATE outbox SET published_at = NULL, parked_at = now(), attempts = 10 WHERE event_id = '{6}'",
        *("stuck", "published", 6, "fern outbox retry {event}"),
    ),
    Break(
        "notification",
        "DELETE FROM processed_event WHERE event_id = '{6}'",
        *("lost", "claimed", 6, "fern replay --labour {labour} --type labour.begun"),
    ),
    Break(
        "labour",
        "DELETE FROM processed_event WHERE event_id = '{9}'",
        *("lost", "claimed", 9, "fern replay --labour {labour} --type notification.sent"),
    ),
    Break(
        "notification", "UPDATE processed_event SET status = 'PROCESSING' WHERE event_id = '{6}'", "lost", "claimed", 6
    ),
    Break("labour", "DELETE FROM outbox WHERE event_id = '{6}'", "unexplained", "claimed", 6),
    Break("notification", "DELETE FROM processed_event WHERE event_id = '{6}'", "unexplained", "effects", 6),
    Break("notification", "DELETE FROM notification WHERE id = '{7}'", "lost", "effects", 6),
    Break(
        "notification",
        """INSERT INTO notification (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments)
        SELECT '{50}', event_id, event_type, labour_id, '{51}', '', '', channel, '', 1 FROM notification WHERE id = '{7}'""",
        *("unexplained", "effects", 6),
    ),
    Break("notification", "UPDATE roster SET version = 1 WHERE labour_id = '{1}'", "lost", "effects", 5),
    Break("notification", "DELETE FROM roster_member WHERE person_id = '{2}'", "lost", "effects", 4),
    Break("notification", "UPDATE roster SET version = 3 WHERE labour_id = '{1}'", "unexplained", "effects", 1),
    Break("labour", "DELETE FROM told WHERE notification_id = '{7}'", "lost", "effects", 11),
    Break("labour", "UPDATE told SET news = 'sent', rank = 1 WHERE notification_id = '{7}'", "lost", "effects", 11),
    Break("notification", "UPDATE notification SET state = 'SENT' WHERE id = '{7}'", "unexplained", "effects", 6),
    Break("notification", "DELETE FROM notification WHERE id = '{7}'", "unexplained", "effects", 1),
    Break("notification", "UPDATE notification SET sid = 'SM{7}' WHERE id = '{7}'", "lost", "texts", 6),
    Break("notification", "UPDATE notification SET sid = 'SM{7}' WHERE id = '{7}'", "duplicated", "texts", 6),
    Break(
        "notification",
        "UPDATE notification SET state = 'FAILED', sid = NULL, failure_code = 21610 WHERE id = '{7}'",
        *("unexplained", "texts", 6),
    ),
    Break(
        "notification",
        "UPDATE notification SET state = 'IN_DOUBT', sid = NULL WHERE id = '{7}'",
        *("stuck", "texts", 6, "fern sms ls --state IN_DOUBT"),
    ),
    Break(
        "notification",
        "UPDATE notification SET state = 'PENDING', sid = NULL WHERE id = '{7}'",
        *("stuck", "texts", 6, "fern sms ls --state PENDING"),
    ),
    Break(
        "labour",
        "UPDATE outbox SET published_at = published_at - interval '1 us' WHERE event_id = '{5}'",
        *("out-of-order", "published", 5),
    ),
    Break("labour", "UPDATE outbox SET published_at = NULL WHERE event_id = '{4}'", "out-of-order", "published", 5),
    Break("labour", "UPDATE outbox SET aggregate_version = 4 WHERE event_id = '{6}'", "out-of-order", "published", 6),
    Break(
        "notification",
        "UPDATE outbox SET published_at = published_at + interval '1 s' WHERE event_id = '{9}'",
        *("out-of-order", "published", GRACE_HAS_IT),
    ),
]


async def test_every_break_is_named_with_its_event_and_what_to_do_and_nothing_else_is(system: System) -> None:
    """Each in the books of a labour of its own."""
    labours = dict(enumerate(BREAKS, start=5))
    await system.fill(min(labours), max(labours))
    for n, broken in labours.items():
        connection = system.labour if broken.service == "labour" else system.notification
        await connection.execute(broken.sql.format(*(made(what, n) for what in range(60))))

    account = await system.audit()

    named: dict[int, set[tuple[str, str, str, str]]] = {n: set() for n in labours}
    for finding in account.findings:
        if not finding.event_id.startswith("SM"):  # the texts of those messages that we delete
            named[int(finding.event_id[-12:], 16)].add((finding.kind, finding.stage, finding.event_id, finding.command))
    for n, broken in labours.items():
        event = made(broken.event, n)
        command = broken.command.format(event=event, labour=made(LABOUR, n))
        assert (broken.kind, broken.stage, str(event), command) in named[n], broken


async def test_books_in_order_add_up(system: System) -> None:
    account = await system.audit(overdue=0)

    assert account.findings == []
    assert account.clean
    assert (account.committed, account.published, account.claimed, account.effects, account.texts) == (
        35,
        35,
        35,
        35,
        10,
    )
    assert account.waiting == 0


async def test_a_second_text_for_the_same_message_is_a_duplicate_and_a_foreign_one_is_unexplained(
    system: System,
) -> None:
    phone, body = await system.notification.fetchrow(
        "SELECT phone, body FROM notification WHERE id = $1", made(TO_ALAN, N)
    )

    await system.send(phone, body)
    await system.send(phone, "Hello? #ABCDEFGH")
    account = await system.audit()

    assert account.totals == {"duplicated": 1, "unexplained": 1}
    assert [finding.event_id for finding in account.findings if finding.kind == "duplicated"] == [str(made(BEGUN, N))]
    assert account.texts == 10, "each message still has its own"


async def test_a_message_whose_news_was_never_recorded_is_named(system: System) -> None:
    for news in (SENT_TO_GRACE, GRACE_HAS_IT):
        await system.notification.execute("DELETE FROM outbox WHERE event_id = $1", made(news, N))
        await system.labour.execute("DELETE FROM processed_event WHERE event_id = $1", made(news, N))
    await system.labour.execute("DELETE FROM told WHERE notification_id = $1", made(TO_GRACE, N))

    account = await system.audit()

    assert [(finding.kind, finding.stage, finding.event_id) for finding in account.findings] == [
        ("lost", "effects", str(made(BEGUN, N)))
    ]


async def test_what_was_given_up_is_explained(system: System) -> None:
    """A dead letter waits for a person; what a person discarded is only counted."""
    for event in (BEGUN, ALAN_ADDED):
        await system.notification.execute("DELETE FROM notification WHERE event_id = $1", made(event, N))
        await system.notification.execute("DELETE FROM processed_event WHERE event_id = $1", made(event, N))
    await system.labour.execute("DELETE FROM told WHERE labour_id = $1", made(LABOUR, N))
    await system.labour.execute(
        "DELETE FROM processed_event WHERE event_id = ANY($1)", [made(n, N) for n in range(9, 13)]
    )
    await system.notification.execute("DELETE FROM outbox WHERE ordering_key = $1", str(made(LABOUR, N)))
    await system.notification.execute("UPDATE roster SET version = 1 WHERE labour_id = $1", made(LABOUR, N))
    await system.notification.execute("DELETE FROM roster_member WHERE person_id = $1", made(ALAN, N))
    for message in (TO_GRACE, TO_ALAN):
        sid = f"SM{md5(str(made(message, N)).encode()).hexdigest()}"
        system.sms.sandbox.store.db.execute("DELETE FROM message WHERE sid = ?", (sid,))
    discard = "UPDATE outbox SET published_at = NULL, discarded_at = now() WHERE event_id = $1"
    await system.labour.execute(discard, made(BEGUN, N))

    async def dead() -> AsyncIterator[DeadLetter]:
        message = Message("subscriber.added.dlq", "", "1", b"", {}, 0)
        event_id = str(made(ALAN_ADDED, N))
        yield DeadLetter(message, "subscriber.added", "notification", "reaction-failed", event_id, "subscriber.added")

    account = await system.audit(dead())

    assert account.discarded == 1
    assert account.dead == 1
    assert [(finding.kind, finding.event_id, finding.command) for finding in account.findings] == [
        ("stuck", str(made(ALAN_ADDED, N)), f"fern dlq redrive --event {made(ALAN_ADDED, N)}")
    ]


async def test_what_is_on_its_way_is_not_accused_until_it_is_overdue(system: System) -> None:
    await system.labour.execute("UPDATE outbox SET published_at = now() WHERE event_id = $1", made(BEGUN, N))
    await system.notification.execute("DELETE FROM processed_event WHERE event_id = $1", made(BEGUN, N))
    await system.notification.execute("DELETE FROM notification WHERE event_id = $1", made(BEGUN, N))
    await system.labour.execute("DELETE FROM told WHERE labour_id = $1", made(LABOUR, N))
    await system.labour.execute(
        "DELETE FROM processed_event WHERE event_id = ANY($1)", [made(n, N) for n in range(9, 13)]
    )
    await system.notification.execute("DELETE FROM outbox WHERE ordering_key = $1", str(made(LABOUR, N)))

    in_time = await system.audit(overdue=60)
    too_late = await system.audit(overdue=0)

    assert in_time.waiting == 1
    assert {finding.stage for finding in in_time.findings} == {"texts"}, "only the texts, which nothing explains now"
    assert ("lost", "claimed") in {(finding.kind, finding.stage) for finding in too_late.findings}


async def test_what_retention_has_forgotten_is_not_missed(system: System) -> None:
    for connection in (system.labour, system.notification):
        await connection.execute("DELETE FROM outbox WHERE recorded_at < moment(2)")

    account = await system.audit()

    assert account.clean, account.findings
    assert account.committed == 21


async def test_neither_a_replay_nor_the_news_of_different_messages_has_an_order(system: System) -> None:
    late = "UPDATE outbox SET published_at = published_at + interval '1 s' WHERE event_id = ANY($1)"
    await system.notification.execute(late, [made(SENT_TO_GRACE, N), made(GRACE_HAS_IT, N)])
    replay = "UPDATE outbox SET replayed_at = now(), published_at = now() WHERE event_id = $1"
    await system.labour.execute(replay, made(GRACE_ADDED, N))

    account = await system.audit()

    assert account.clean, account.findings


def run(system: System, monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Result:
    """The command, as people call it; without a bus."""
    for service, url in system.urls.items():
        monkeypatch.setenv(f"{service.upper()}_DATABASE_URL", url)
    monkeypatch.setenv("TWILIO_BASE_URL", system.sms.url)
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", "127.0.0.1:1")
    return CliRunner().invoke(audit_command, arguments)


async def test_the_command_ends_with_0_when_all_is_well_and_with_20_when_not_and_names_nobody(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    well = await asyncio.to_thread(run, system, monkeypatch)
    await system.notification.execute("DELETE FROM notification WHERE id = $1", made(TO_GRACE, N))
    broken = await asyncio.to_thread(run, system, monkeypatch)
    for_programs = await asyncio.to_thread(run, system, monkeypatch, "--json")

    assert well.exit_code == 0, well.output
    assert "clean" in well.stdout
    assert broken.exit_code == for_programs.exit_code == 20
    assert f"fern trace {made(BEGUN, N)}" in broken.stdout
    assert "dead letters" in broken.stderr, "nobody could ask the bus"
    found = json.loads(for_programs.stdout)
    assert found["clean"] is False
    assert found["totals"] == {"lost": 1, "unexplained": 2}
    for output in (well.output, broken.output, for_programs.output):
        assert "Grace" not in output
        assert "+12" not in output
        assert "in labour" not in output


async def test_without_a_database_the_command_ends_with_19(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        free = taken.getsockname()[1]
    system.urls["labour"] = f"postgresql://labour:labour@127.0.0.1:{free}/labour"

    silent = await asyncio.to_thread(run, system, monkeypatch)

    assert silent.exit_code == 19, silent.output
    assert "does not answer" in silent.stderr


async def test_memory_does_not_grow_with_the_number_of_events(system: System, monkeypatch: pytest.MonkeyPatch) -> None:
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


def test_a_living_system_is_never_accused(world: World) -> None:
    """Audits without a pause, while labours are planned and completed as fast as they come."""
    before = _findings(world)
    with _mothers(world, 8):
        during = [_findings(world) for _ in range(4)]
    after = _findings(world, overdue=0)

    assert [findings - before for findings in during] == [set()] * 4
    assert after - before == set()


def _findings(world: World, overdue: float = 60) -> set[Finding]:
    """Other tests may have left theirs."""
    sandbox = world.settings.url("sms-sandbox")
    account = asyncio.run(audit(world.urls, sandbox=sandbox, overdue_seconds=overdue))
    return set(account.findings)


@contextmanager
def _mothers(world: World, count: int) -> Iterator[None]:
    """Leaves when everyone has been told."""

    def give_birth() -> None:
        for _ in range(count):
            labour = world.plan("Grace", "Alan")
            world.complete(labour)
            world.until_everyone_is_told(labour, COMPLETE)

    thread = threading.Thread(target=give_birth)
    thread.start()
    yield
    thread.join()
