"""Consistent audit data: the rows of labours that have begun, each with two subscribers who got the text.

For each labour there are three events of the Labour service, one of which its statistics count, two messages with their texts,
and four events of the Notification service about them, with every row that such a history leaves in both databases. Tests then
change rows, or create many labours.
"""

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

import asyncpg

from e2e.support.api import async_client
from e2e.support.databases import connect
from fern.audit.auditor import AuditReport, audit
from fern.dead_letters import DeadLetter
from pubsub_emulator.server import Running
from pubsub_emulator.server import running as running_bus
from sms_sandbox import Address, running
from sms_sandbox.message import Message as Text

ACCOUNT = "AC" + 32 * "0"
BEGAN = int(time.time() * 1000) - 7 * 86_400_000  # a week ago; one labour in each second since then

# What belongs to a labour. The number is part of the ids: `id_of(BEGUN, 3)` is the event `labour.begun` of labour 3.
LABOUR, GRACE, ALAN, GRACE_ADDED, ALAN_ADDED, BEGUN, TO_GRACE, TO_ALAN = range(1, 9)
SENT_TO_GRACE, SENT_TO_ALAN, GRACE_HAS_IT, ALAN_HAS_IT = range(9, 13)


def id_of(what: int, n: int) -> UUID:
    """A UUIDv7; the SQL function of the same name returns the same."""
    return UUID(f"{BEGAN + n * 1000:012x}7{what:03x}8{n:015x}")


SQL_FUNCTIONS = f"""
    CREATE FUNCTION id_of(what int, n int) RETURNS uuid IMMUTABLE LANGUAGE sql RETURN (
        lpad(to_hex({BEGAN} + n * 1000::bigint), 12, '0') || '7' || lpad(to_hex(what), 3, '0') || '8'
        || lpad(to_hex(n), 15, '0'))::uuid;
    CREATE FUNCTION moment(n int) RETURNS timestamptz IMMUTABLE LANGUAGE sql RETURN
        to_timestamp({BEGAN} / 1000.0 + n);
"""

LABOUR_ROWS = """
    INSERT INTO labour (id, mother_id, mother_name, first_labour, phase, planned_at, begun_at, roster_version, version)
    SELECT id_of(1, n), 'ada-' || n, 'Ada', true, 'early', moment(n), moment(n), 2, 3 FROM generate_series({0}, {1}) AS n;

    INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, recorded_at, published_at,
        aggregate_version)
    SELECT id_of(what, n), topic, id_of(1, n)::text, 0, '{{}}',
        jsonb_build_object('labour_id', id_of(1, n), 'roster_version', roster_version, 'person_id', id_of(who, n))::text,
        moment(n), moment(n), moment(n) + interval '5 ms', what
    FROM generate_series({0}, {1}) AS n, (VALUES
        (4, 'subscriber.added', 1, 2), (5, 'subscriber.added', 2, 3), (6, 'labour.begun', 2, 0)
    ) AS event (what, topic, roster_version, who) ORDER BY n, what;

    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT 'labour', id_of(what, n), 'COMPLETED', moment(n) FROM generate_series({0}, {1}) AS n, generate_series(9, 12) AS what;

    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT 'statistics', id_of(6, n), 'COMPLETED', moment(n) FROM generate_series({0}, {1}) AS n;

    INSERT INTO statistics_posting (event_id, what, labour_id, amount)
    SELECT id_of(6, n), 'early', id_of(1, n), 1000 + n FROM generate_series({0}, {1}) AS n;

    INSERT INTO statistics_balance (labour_id, what, amount)
    SELECT id_of(1, n), what, amount
    FROM generate_series({0}, {1}) AS n, LATERAL (VALUES ('contractions', 0), ('early', 1000 + n)) AS balance (what, amount);

    INSERT INTO told (notification_id, labour_id, person_id, event_id, event_type, channel, status, rank, at)
    SELECT id_of(what, n), id_of(1, n), id_of(what - 5, n), id_of(6, n), 'labour.begun', 'sms', 'delivered', 2, moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(7, 8) AS what;
"""

NOTIFICATION_ROWS = """
    INSERT INTO roster SELECT id_of(1, n), 2 FROM generate_series({0}, {1}) AS n;

    INSERT INTO roster_member (labour_id, person_id, name, phone, added_version)
    SELECT id_of(1, n), id_of(who, n), 'Grace', '+1' || 2000000000 + 2 * n + who, who - 1
    FROM generate_series({0}, {1}) AS n, generate_series(2, 3) AS who;

    INSERT INTO processed_event (consumer, event_id, status, completed_at)
    SELECT 'notification', id_of(what, n), 'COMPLETED', moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(4, 6) AS what;

    INSERT INTO notification (id, event_id, event_type, labour_id, person_id, person_name, phone, channel, body, segments, state,
        attempt, sid, created_at, sending_at, sent_at, delivered_at)
    SELECT id, id_of(6, n), 'labour.begun', id_of(1, n), id_of(what - 5, n), 'Grace', '+1' || 2000000000 + 2 * n + what - 5,
        'sms', 'Ada is in labour. #' || right(md5(id::text), 8), 1, 'DELIVERED', 1, 'SM' || md5(id::text),
        moment(n), moment(n), moment(n), moment(n)
    FROM generate_series({0}, {1}) AS n, generate_series(7, 8) AS what, LATERAL (SELECT id_of(what, n) AS id) AS message;

    INSERT INTO outbox (event_id, topic, ordering_key, lane, attributes, payload, occurred_at, recorded_at, published_at)
    SELECT id_of(what, n), CASE WHEN what < 11 THEN 'notification.sent' ELSE 'notification.delivered' END,
        id_of(1, n)::text, 0, '{{}}', jsonb_build_object(
            'labour_id', id_of(1, n), 'notification_id', id_of(7 + (what - 9) % 2, n), 'cause_id', id_of(6, n))::text,
        moment(n), moment(n), moment(n) + interval '5 ms'
    FROM generate_series({0}, {1}) AS n, generate_series(9, 12) AS what ORDER BY n, what;
"""


@dataclass
class AuditedSystem:
    """The databases of both services, the provider, and a bus without any subscription."""

    urls: dict[str, str]
    labour: asyncpg.Connection
    notification: asyncpg.Connection
    sms: Address
    bus: Running

    async def fill(self, first: int, last: int) -> None:
        await self.labour.execute(LABOUR_ROWS.format(first, last))
        await self.notification.execute(NOTIFICATION_ROWS.format(first, last))
        sent = await self.notification.fetch(
            "SELECT sid, phone, body FROM notification WHERE id >= $1 AND id <= $2", id_of(0, first), id_of(999, last)
        )
        store, end = self.sms.sandbox.store, (1, "outbound-api", "delivered", 0, 0)
        with store.transaction():
            for row in sent:
                store.save(Text(row["sid"], ACCOUNT, row["phone"], "+15005550006", None, row["body"], *end))

    async def undo_beginning(self, n: int) -> None:
        """Delete everything that followed from the event `labour.begun`, as if it had not reached the Notification service."""
        labour_id, sids = id_of(LABOUR, n), "SELECT sid FROM notification WHERE labour_id = $1"
        with self.sms.sandbox.store.transaction():
            for row in await self.notification.fetch(sids, labour_id):
                self.sms.sandbox.store.db.execute("DELETE FROM message WHERE sid = ?", (row["sid"],))
        await self.notification.execute("DELETE FROM notification WHERE labour_id = $1", labour_id)
        await self.notification.execute("DELETE FROM processed_event WHERE event_id = $1", id_of(BEGUN, n))
        await self.notification.execute("DELETE FROM outbox WHERE ordering_key = $1", str(labour_id))
        await self.labour.execute("DELETE FROM told WHERE labour_id = $1", labour_id)
        status_events = [id_of(what, n) for what in (SENT_TO_GRACE, SENT_TO_ALAN, GRACE_HAS_IT, ALAN_HAS_IT)]
        await self.labour.execute("DELETE FROM processed_event WHERE event_id = ANY($1)", status_events)

    async def audit(self, dead_letters: AsyncIterator[DeadLetter] | None = None, overdue: float = 60) -> AuditReport:
        return await audit(
            self.urls,
            sandbox=self.sms.url,
            bus=self.bus.http_url,
            dead_letters=dead_letters,
            overdue_seconds=overdue,
        )

    async def send(self, phone: str, body: str) -> None:
        """Send a text without the Notification service."""
        form = {"To": phone, "From": "+15005550006", "Body": body}
        async with async_client(self.sms.url) as provider:
            url = f"/2010-04-01/Accounts/{ACCOUNT}/Messages.json"
            (await provider.post(url, data=form, auth=(ACCOUNT, "token"))).raise_for_status()


@asynccontextmanager
async def five_labours(urls: dict[str, str], directory: Path) -> AsyncIterator[AuditedSystem]:
    """The labours have the numbers 0 to 4. The databases must be empty; the SMS sandbox and the bus store below `directory`."""
    labour, notification = [await connect(url) for url in urls.values()]
    async with running(directory / "sms") as sms, running_bus(directory / "bus") as bus:
        system = AuditedSystem(urls, labour, notification, sms, bus)
        for connection in (labour, notification):
            await connection.execute(SQL_FUNCTIONS)
        await system.fill(0, 4)
        yield system
    await labour.close()
    await notification.close()
