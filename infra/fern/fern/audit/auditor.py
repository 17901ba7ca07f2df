"""The audit: compares every event and every text, from the committed row to the phone, while everything runs.

`reconciliation` compares what the two services recorded about the same events. This module compares the last two hops:
every message of the ledger against the status that the Labour service has of it, and against the texts that the provider has.
"""

from collections import Counter
from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any
from uuid import UUID

import asyncpg

from fern.audit.arrival import judge_unsettled
from fern.audit.consents import judge_consents
from fern.audit.reconciliation import (
    CHUNK,
    check_order,
    chunks,
    columns,
    compare_rosters,
    judge_ledger,
    judge_told,
    reconcile_events,
)
from fern.audit.report import AuditReport, Finding, Kind, ShowProgress
from fern.audit.run import AuditRun, read_backlog
from fern.audit.statistics import compare_balances, judge_statistics
from fern.client import AsyncClient
from fern.dead_letters import DeadLetter
from fern.errors import FernError, NotRunning
from fern.settings import Settings
from fern.topology import Declared
from messaging.database import is_transient, opener
from messaging.errors import SettingsError
from messaging.retention import first_id

__all__ = ["AuditReport", "Finding", "Kind", "audit"]

PAGE = 1000  # texts in one answer of the sandbox
PAGE_SECONDS = 5.0  # for one page
OVERDUE = 120.0  # seconds; the bus waits up to 60 s before it delivers again

_TOLD = "SELECT notification_id, labour_id, status FROM told WHERE notification_id > $1 AND notification_id <= $2"

# The ledger is read after `told`, so it can only be ahead. `since` is the time of the last step that has one.
_TOLD_DIFFERENCES = """
    WITH ledger AS (
        SELECT id, event_id, labour_id, coalesce(delivered_at, sent_at, in_doubt_at, sending_at, created_at) AS since,
            CASE state WHEN 'SENT' THEN 'sent' WHEN 'DELIVERED' THEN 'delivered'
                WHEN 'UNDELIVERED' THEN 'failed' WHEN 'FAILED' THEN 'failed' WHEN 'SUPERSEDED' THEN 'superseded' END AS status
        FROM notification WHERE id > $4 AND id <= $5)
    SELECT id, coalesce(ledger.event_id, told.labour_id) AS about, ledger.labour_id, since, ledger.status AS status,
        told.status IS NULL OR (told.status = 'sent' AND ledger.status IN ('delivered', 'failed'))
            OR (told.status = 'superseded' AND ledger.status IS NOT NULL) AS is_behind
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS told (id, labour_id, status) FULL JOIN ledger USING (id)
    WHERE told.status IS DISTINCT FROM ledger.status
"""

# The id of a status event begins with the time of its message, so older rows of the outbox need not be read.
_STATUS_EVENTS = """
    SELECT payload::jsonb ->> 'notification_id' AS id, topic FROM outbox
    WHERE event_id > $1 AND ordering_key = ANY($2::text[]) AND topic LIKE 'notification.%'
"""

_UNSETTLED = """
    SELECT id, event_id, state, coalesce(released_at, created_at) AS created_at, in_doubt_at
    FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')
"""

_SUPERSEDED = """
    SELECT id, event_id, EXISTS (
        SELECT FROM notification AS newer WHERE newer.labour_id = older.labour_id AND newer.person_id = older.person_id
            AND newer.sequence > older.sequence AND newer.state <> 'SUPERSEDED') AS has_newer
    FROM notification AS older WHERE state = 'SUPERSEDED'
"""

# A message that was taken to be sent after a newer one of the same person and labour.
_TEXTS_OUT_OF_ORDER = """
    SELECT id, event_id FROM (
        SELECT id, event_id, state, sending_at, min(sending_at) FILTER (WHERE state NOT IN ('PENDING', 'SUPERSEDED')) OVER (
            PARTITION BY labour_id, person_id ORDER BY sequence ROWS BETWEEN 1 FOLLOWING AND UNBOUNDED FOLLOWING) AS newer_at
        FROM notification WHERE sequence IS NOT NULL) AS message
    WHERE sending_at > newer_at AND state NOT IN ('PENDING', 'SUPERSEDED')
"""

_SENT = 'SELECT id, event_id, sid FROM notification WHERE sid IS NOT NULL ORDER BY sid COLLATE "C"'

# The reference at the end of a text, and the phone: they identify a text whose sid the ledger does not have.
_BY_REFERENCE = """
    SELECT reference, phone, id, event_id, sid, state, failure_code
    FROM unnest($1::text[], $2::text[]) AS text (reference, phone) JOIN notification USING (phone)
    WHERE right(body, 9) = reference
"""

_HIGHEST_ID = "SELECT event_id FROM outbox ORDER BY event_id DESC LIMIT 1"


async def audit(
    databases: Mapping[str, str],
    *,
    sandbox: str | None,
    bus: str | None = None,
    dead_letters: AsyncIterable[DeadLetter] | None = None,
    overdue_seconds: float = OVERDUE,
    progress: ShowProgress = lambda what, done, of: None,
) -> AuditReport:
    """Compare everything, and return the findings. Raises `NotRunning` if a database or the sandbox does not answer.

    databases         the URL of `labour` and of `notification`
    sandbox           the URL of the SMS sandbox; None if there is none to compare with
    bus               the URL of the emulator's HTTP port; None if there is none to ask what is on the bus
    overdue_seconds   how long anything may take to its next stage; with 0 nothing may be on its way
    """
    declared = Declared.load()
    report = AuditReport(texts_compared=sandbox is not None)
    try:
        async with AsyncExitStack() as stack:
            connections = {name: await _connect(url, stack) for name, url in databases.items()}
            now = await connections["labour"].fetchval("SELECT clock_timestamp()")
            # In this order, an event that goes on meanwhile is found: on the bus, then among the dead letters, then claimed.
            backlog = await read_backlog(bus)
            dead = [letter async for letter in dead_letters] if dead_letters else []
            # A process whose clock is ahead records events with ids of the future.
            recorded = [await connection.fetchval(_HIGHEST_ID) for connection in connections.values()]
            run = AuditRun(
                connections,
                report,
                consumers=declared.consumers(),
                backlog=backlog,
                retention=timedelta(days=declared.options["retention_days"]),
                dead={(letter.consumer, letter.event_id): letter.reason for letter in dead},
                dead_seen=Counter(letter.topic for letter in dead),
                now=now,
                overdue=timedelta(seconds=overdue_seconds),
                end=max([first_id(now + timedelta(milliseconds=1)), *filter(None, recorded)]),
                progress=progress,
            )
            await reconcile_events(run, "labour", {"notification": judge_ledger, "statistics": judge_statistics})
            await reconcile_events(run, "notification", {"labour": judge_told})
            await compare_rosters(run)
            await compare_balances(run)
            await _compare_told(run)
            for service in connections:
                await check_order(run, service)
            await _judge_unsettled(run)
            await _count_superseded(run)
            await judge_consents(run)
            await _check_order_of_texts(run)
            await _compare_texts(run, sandbox)
    except Exception as error:
        if not is_transient(error):
            raise
        raise NotRunning(f"a database does not answer any more: {error}", command="fern status") from error
    return report


async def _connect(url: str, stack: AsyncExitStack) -> asyncpg.Connection:
    try:
        plain, connect = opener(url)
    except SettingsError as error:
        raise FernError(f"the URL of a database cannot be used: {error}", command="fern audit --help") from None
    dsn = plain.set(drivername="postgresql").render_as_string(hide_password=False)
    try:
        connection = await connect(dsn, timeout=5, server_settings={"application_name": "audit"})
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise NotRunning(f"a database does not answer: {error}", command="fern status") from error
    stack.push_async_callback(connection.close)
    return connection


async def _compare_told(run: AuditRun) -> None:
    """Check that the Labour service has the ledger's status of each message, or an older one while the newer is on its way."""
    told, ledger = run.databases["labour"], run.databases["notification"]
    lists = [(told, "SELECT notification_id AS id FROM told"), (ledger, "SELECT id FROM notification")]
    async for low, high in chunks(lists, run.end):
        told_so_far = columns(await told.fetch(_TOLD, low, high), "notification_id", "labour_id", "status")
        differing = await ledger.fetch(_TOLD_DIFFERENCES, *told_so_far, low, high)
        overdue = [row for row in differing if row["is_behind"] and row["since"] < run.overdue_before]
        labours = list({str(row["labour_id"]) for row in overdue})
        same_time = UUID(int=low.int >> 80 << 80)  # the time of an id, without its other bits
        on_its_way = (
            {tuple(row) for row in await ledger.fetch(_STATUS_EVENTS, same_time, labours)} if overdue else set()
        )
        for row in overdue:
            if (str(row["id"]), f"notification.{row['status']}") not in on_its_way:
                what = f"Message {row['id']} is {row['status']}, and no event tells the Labour service."
                run.report.add("lost", row["about"], "effects", what)
        for row in differing:
            if not row["is_behind"]:
                what = f"The Labour service has a status of message {row['id']} that the ledger does not have."
                run.report.add("unexplained", row["about"], "effects", what)


async def _judge_unsettled(run: AuditRun) -> None:
    ledger = run.databases["notification"]
    async with ledger.transaction(readonly=True):
        async for row in ledger.cursor(_UNSETTLED, prefetch=CHUNK):
            judge_unsettled(run, row)


async def _count_superseded(run: AuditRun) -> None:
    """Count the superseded messages, and report those whose person has no newer message about the same labour."""
    ledger = run.databases["notification"]
    async with ledger.transaction(readonly=True):
        async for row in ledger.cursor(_SUPERSEDED, prefetch=CHUNK):
            run.report.superseded += 1
            if not row["has_newer"]:
                what = f"Message {row['id']} is superseded, and the person has no newer message about this labour."
                run.report.add("lost", row["event_id"], "texts", what)


async def _check_order_of_texts(run: AuditRun) -> None:
    ledger = run.databases["notification"]
    async with ledger.transaction(readonly=True):
        async for row in ledger.cursor(_TEXTS_OUT_OF_ORDER, prefetch=CHUNK):
            what = f"Message {row['id']} was sent after a newer one to the same person about the same labour."
            run.report.add("out-of-order", row["event_id"], "texts", what)


async def _compare_texts(run: AuditRun, sandbox: str | None) -> None:
    """Compare ledger and provider in the order of their sids. Without a sandbox, the sids in the ledger count as texts."""
    stage, ledger = run.report.stages["texts"], run.databases["notification"]
    if sandbox is None:
        sent = await ledger.fetchval("SELECT count(sid) FROM notification")
        stage.due, stage.done = stage.due + sent, stage.done + sent
        return
    unknown, seen = list[dict[str, Any]](), 0
    async with ledger.transaction(readonly=True), AsyncClient(Settings.load(), PAGE_SECONDS) as provider:
        rows = ledger.cursor(_SENT, prefetch=CHUNK).__aiter__()
        row = await anext(rows, None)
        async for page in _pages(provider, sandbox):
            for message in page:
                while row and row["sid"] < message["sid"]:
                    _judge_missing(run, row)
                    row = await anext(rows, None)
                if row and row["sid"] == message["sid"]:
                    stage.due, stage.done = stage.due + 1, stage.done + 1
                    row = await anext(rows, None)
                else:
                    unknown.append(message)
            seen += len(page)
            run.progress("texts", seen, None)
            if len(unknown) >= CHUNK:
                await _judge_unknown(run, unknown)
                unknown.clear()
        while row:
            _judge_missing(run, row)
            row = await anext(rows, None)
        await _judge_unknown(run, unknown)


async def _pages(provider: AsyncClient, sandbox: str) -> AsyncIterator[list[dict[str, Any]]]:
    after = ""
    while page := (await provider.get(sandbox, "/sandbox/messages/by-sid", after=after, limit=PAGE))["items"]:
        yield page
        after = page[-1]["sid"]


def _judge_missing(run: AuditRun, row: asyncpg.Record) -> None:
    run.report.stages["texts"].due += 1
    what = f"Message {row['id']} went out as {row['sid']}, and the provider has no such text (or it was cleared)."
    run.report.add("lost", row["event_id"], "texts", what)


async def _judge_unknown(run: AuditRun, messages: list[dict[str, Any]]) -> None:
    """Judge texts whose sid the ledger did not have when it was read. It may have the sid now, or the message may be in doubt."""
    if not messages:
        return
    report, stage = run.report, run.report.stages["texts"]
    keys = [(message["body"][-9:], message["to"]) for message in messages]
    found = await run.databases["notification"].fetch(_BY_REFERENCE, *(list(part) for part in zip(*keys, strict=True)))
    rows = {(row["reference"], row["phone"]): row for row in found}
    accounted = set[Any]()
    for message, key in zip(messages, keys, strict=True):
        row = rows.get(key)
        if row is None:
            what = f"The provider has text {message['sid']}, and no message of the ledger has caused it."
            report.add("unexplained", message["sid"], "texts", what, "fern logs notification-dispatcher")
        elif row["id"] in accounted or row["sid"] not in (None, message["sid"]):
            what = f"The provider has another text for message {row['id']}: {message['sid']}."
            report.add("duplicated", row["event_id"], "texts", what)
        elif row["state"] == "FAILED" and row["failure_code"]:
            what = f"Message {row['id']} was refused, and yet the provider has a text for it: {message['sid']}."
            report.add("unexplained", row["event_id"], "texts", what)
        elif row["state"] in ("SUPERSEDED", "AWAITING_CONSENT"):
            what = f"Message {row['id']} is {row['state']}, and yet the provider has a text for it: {message['sid']}."
            report.add("unexplained", row["event_id"], "texts", what)
        elif row["sid"]:
            stage.due, stage.done = stage.due + 1, stage.done + 1
        accounted.add(row and row["id"])
