"""`fern audit`: accounts for every event and every text, from the committed row to the phone, while everything runs.

What the two services say of the same events is compared in `reconciliation`. Here are the last two hops: every message of the
ledger against what the Labour service was told of it, and against the texts that the provider really has.
"""

from collections.abc import AsyncIterable, AsyncIterator, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import asyncpg
import httpx

from fern.audit.account import Account, Finding, Kind, Progress
from fern.audit.reconciliation import (
    CHUNK,
    Books,
    check_order,
    chunks,
    columns,
    compare_rosters,
    reconcile_events,
)
from fern.dead_letters import DeadLetter
from fern.errors import NotRunning
from fern.topology import Declared
from messaging.database import is_transient
from messaging.retention import first_id

__all__ = ["Account", "Finding", "Kind", "audit"]

PAGE = 1000
OVERDUE = 120.0  # seconds; the bus waits up to 60 before it delivers again

_TOLD = "SELECT notification_id, labour_id, news FROM told WHERE notification_id > $1 AND notification_id <= $2"

# The ledger is read after `told`, so it can only be ahead. `since` is the last step that we know the time of.
_TOLD_DIFFERENCES = """
    WITH ledger AS (
        SELECT id, event_id, labour_id, coalesce(delivered_at, sent_at, in_doubt_at, sending_at, created_at) AS since,
            CASE state WHEN 'SENT' THEN 'sent' WHEN 'DELIVERED' THEN 'delivered'
                WHEN 'UNDELIVERED' THEN 'failed' WHEN 'FAILED' THEN 'failed' END AS news
        FROM notification WHERE id > $4 AND id <= $5)
    SELECT id, coalesce(ledger.event_id, told.labour_id) AS about, ledger.labour_id, since, ledger.news AS news,
        told.news IS NULL OR (told.news = 'sent' AND ledger.news IN ('delivered', 'failed')) AS is_behind
    FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS told (id, labour_id, news) FULL JOIN ledger USING (id)
    WHERE told.news IS DISTINCT FROM ledger.news
"""

# News is made after the message it is about, so older rows of the outbox need not be read.
_NEWS = """
    SELECT payload::jsonb ->> 'notification_id' AS id, topic FROM outbox
    WHERE event_id > $1 AND ordering_key = ANY($2::text[]) AND topic LIKE 'notification.%'
"""

_UNSETTLED = (
    "SELECT id, event_id, state, created_at FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')"
)

_SENT = 'SELECT id, event_id, sid FROM notification WHERE sid IS NOT NULL ORDER BY sid COLLATE "C"'

# The reference at the end of a text, and the phone: what identifies a text that the ledger does not know by its sid.
_BY_REFERENCE = """
    SELECT reference, phone, id, event_id, sid, state, failure_code
    FROM unnest($1::text[], $2::text[]) AS text (reference, phone) JOIN notification USING (phone)
    WHERE right(body, 9) = reference
"""


async def audit(
    databases: Mapping[str, str],
    *,
    sandbox: str | None,
    dead_letters: AsyncIterable[DeadLetter] | None = None,
    overdue_seconds: float = OVERDUE,
    progress: Progress = lambda what, done, of: None,
) -> Account:
    """`databases` are the addresses of `labour` and `notification`; `sandbox` that of the SMS sandbox, or None.

    With `overdue_seconds=0` nothing may be on its way any more.
    """
    account = Account(texts_compared=sandbox is not None)
    dead = {(dead.consumer, dead.event_id): dead.reason async for dead in dead_letters} if dead_letters else {}
    try:
        async with AsyncExitStack() as stack:
            connections = {name: await _connect(url, stack) for name, url in databases.items()}
            now = await connections["labour"].fetchval("SELECT clock_timestamp()")
            books = Books(
                connections,
                account,
                consumers=_consumers(),
                dead=dead,
                patience=now - timedelta(seconds=overdue_seconds),
                end=first_id(now + timedelta(milliseconds=1)),
                progress=progress,
            )
            await reconcile_events(books, "labour", "notification")
            await reconcile_events(books, "notification", "labour")
            await compare_rosters(books)
            await _compare_told(books)
            for service in connections:
                await check_order(books, service)
            await _count_unsettled(books)
            await _compare_texts(books, sandbox)
    except httpx.HTTPError as error:
        raise NotRunning(f"the SMS sandbox does not answer: {error}", command="fern status") from error
    except Exception as error:
        if not is_transient(error):
            raise
        raise NotRunning(f"a database went away: {error}", command="fern status") from error
    return account


async def _connect(url: str, stack: AsyncExitStack) -> asyncpg.Connection:
    plain = url.replace("postgresql+asyncpg:", "postgresql:")
    try:
        connection = await asyncpg.connect(plain, timeout=5, server_settings={"application_name": "audit"})
    except (OSError, TimeoutError, asyncpg.PostgresError) as error:
        raise NotRunning(f"a database does not answer: {error}", command="fern status") from error
    stack.push_async_callback(connection.close)
    return connection


def _consumers() -> dict[str, set[str]]:
    consumers: dict[str, set[str]] = {}
    for name, (topic, dead_letter_topic) in Declared.load().subscriptions.items():
        if dead_letter_topic:
            consumers.setdefault(topic, set()).add(name.removesuffix(f".{topic}"))
    return consumers


async def _compare_told(books: Books) -> None:
    """What the Labour service was told is what the ledger says, or older with the rest on its way."""
    told, ledger = books.databases["labour"], books.databases["notification"]
    lists = [(told, "SELECT notification_id AS id FROM told"), (ledger, "SELECT id FROM notification")]
    async for low, high in chunks(lists, books.end):
        told_so_far = columns(await told.fetch(_TOLD, low, high), "notification_id", "labour_id", "news")
        differing = await ledger.fetch(_TOLD_DIFFERENCES, *told_so_far, low, high)
        overdue = [row for row in differing if row["is_behind"] and row["since"] < books.patience]
        labours = list({str(row["labour_id"]) for row in overdue})
        on_its_way = {tuple(row) for row in await ledger.fetch(_NEWS, low, labours)} if overdue else set()
        for row in differing:
            if not row["is_behind"]:
                what = f"The Labour service was told of message {row['id']} what the ledger does not say."
                books.account.name("unexplained", row["about"], "effects", what)
            elif row["since"] < books.patience and (str(row["id"]), f"notification.{row['news']}") not in on_its_way:
                what = f"Message {row['id']} is {row['news']}, and there is no news of it for the Labour service."
                books.account.name("lost", row["about"], "effects", what)


async def _count_unsettled(books: Books) -> None:
    stage, ledger = books.account.stages["texts"], books.databases["notification"]
    async with ledger.transaction(readonly=True):
        async for row in ledger.cursor(_UNSETTLED, prefetch=CHUNK):
            stage.due += 1
            if row["created_at"] > books.patience:
                stage.waiting += 1
                continue
            stage.held += 1
            what = f"Message {row['id']} about this event is {row['state']}, and should be settled by now."
            books.account.name("stuck", row["event_id"], "texts", what, f"fern sms ls --state {row['state']}")


async def _compare_texts(books: Books, sandbox: str | None) -> None:
    """Both sides in the order of their sids, side by side. Without a sandbox, what the provider told us has to do."""
    stage, ledger = books.account.stages["texts"], books.databases["notification"]
    if sandbox is None:
        sent = await ledger.fetchval("SELECT count(sid) FROM notification")
        stage.due, stage.done = stage.due + sent, stage.done + sent
        return
    unknown, seen = list[dict[str, Any]](), 0
    async with ledger.transaction(readonly=True), httpx.AsyncClient(base_url=sandbox, trust_env=False) as provider:
        rows = ledger.cursor(_SENT, prefetch=CHUNK).__aiter__()
        row = await anext(rows, None)
        async for page in _pages(provider):
            for message in page:
                while row and row["sid"] < message["sid"]:
                    _judge_missing(books, row)
                    row = await anext(rows, None)
                if row and row["sid"] == message["sid"]:
                    stage.due, stage.done = stage.due + 1, stage.done + 1
                    row = await anext(rows, None)
                else:
                    unknown.append(message)
            seen += len(page)
            books.progress("texts", seen, None)
            if len(unknown) >= CHUNK:
                await _judge_unknown(books, unknown)
                unknown.clear()
        while row:
            _judge_missing(books, row)
            row = await anext(rows, None)
        await _judge_unknown(books, unknown)


async def _pages(provider: httpx.AsyncClient) -> AsyncIterator[list[dict[str, Any]]]:
    after = ""
    while True:
        query: dict[str, str | int] = {"after": after, "limit": PAGE}
        answer = await provider.get("/sandbox/messages/by-sid", params=query)
        page: list[dict[str, Any]] = answer.raise_for_status().json()["items"]
        if not page:
            return
        yield page
        after = page[-1]["sid"]


def _judge_missing(books: Books, row: Mapping[str, Any]) -> None:
    books.account.stages["texts"].due += 1
    what = (
        f"Message {row['id']} went out as {row['sid']}, and the provider has no such text. (Were the phones cleared?)"
    )
    books.account.name("lost", row["event_id"], "texts", what)


async def _judge_unknown(books: Books, messages: list[dict[str, Any]]) -> None:
    """Texts whose sid the ledger did not know when we looked: it may have learned it since, or not be sure of it yet."""
    if not messages:
        return
    account, stage = books.account, books.account.stages["texts"]
    keys = [(message["body"][-9:], message["to"]) for message in messages]
    found = await books.databases["notification"].fetch(
        _BY_REFERENCE, *(list(part) for part in zip(*keys, strict=True))
    )
    rows = {(row["reference"], row["phone"]): row for row in found}
    accounted = set[Any]()
    for message, key in zip(messages, keys, strict=True):
        row = rows.get(key)
        if row is None:
            what = f"The provider has text {message['sid']}, and no message of the ledger accounts for it."
            account.name("unexplained", message["sid"], "texts", what, "fern logs notification-dispatcher")
        elif row["id"] in accounted or row["sid"] not in (None, message["sid"]):
            what = f"The provider has another text for message {row['id']}: {message['sid']}."
            account.name("duplicated", row["event_id"], "texts", what)
        elif row["state"] == "FAILED" and row["failure_code"]:
            what = f"Message {row['id']} was refused, and yet the provider has a text for it: {message['sid']}."
            account.name("unexplained", row["event_id"], "texts", what)
        elif row["sid"]:
            stage.due, stage.done = stage.due + 1, stage.done + 1
        accounted.add(row and row["id"])
