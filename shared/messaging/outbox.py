"""The outbox: events wait here, committed together with the change that caused them, until the relay has published them.

A row is pending until it is published or discarded. A row that the bus rejects is retried with growing pauses and finally
parked. A parked row holds up the later rows of its ordering key, and no others, until an operator retries or discards it.
"""

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    DateTime,
    Identity,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
    literal_column,
    select,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncConnection

from messaging import telemetry
from messaging.aggregate import Recorded
from messaging.database import Statement
from messaging.envelope import attributes
from messaging.origin import current_request

LANES = 64  # rows of `outbox_lane`: the most relays that can work at the same time

metadata = MetaData()

outbox = Table(
    "outbox",
    metadata,
    Column("position", BigInteger, Identity(always=True), primary_key=True),
    Column("event_id", Uuid, nullable=False, unique=True),
    Column("topic", Text, nullable=False),
    Column("ordering_key", Text, nullable=False),
    Column("lane", SmallInteger, nullable=False),
    Column("attributes", JSONB, nullable=False),
    Column("payload", Text, nullable=False),
    Column("occurred_at", DateTime(timezone=True), nullable=False),
    Column("recorded_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("published_at", DateTime(timezone=True)),
    Column("attempts", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True)),
    Column("last_error", Text),
    Column("parked_at", DateTime(timezone=True)),
    Column("discarded_at", DateTime(timezone=True)),
    Column("aggregate_version", Integer),
    Column("request", JSONB(none_as_null=True)),
    Column("message_id", Text),
    Column("replayed_at", DateTime(timezone=True)),
)


@dataclass(frozen=True, slots=True)
class OutboxRow:
    """A row as operators see it, without the payload, which holds personal data.

    `aggregate_version` is the sequence of the event. `request` is the HTTP request that caused it. `message_id` is the bus's id
    of the last time it was published.
    `cause_id` is the event that a `notification.*` event reports on.
    """

    position: int
    event_id: UUID
    type: str
    ordering_key: str
    occurred_at: datetime
    recorded_at: datetime
    published_at: datetime | None
    attempts: int
    next_attempt_at: datetime | None
    parked_at: datetime | None
    discarded_at: datetime | None
    last_error: str | None
    aggregate_version: int | None
    request: dict[str, str | None] | None
    traceparent: str | None
    message_id: str | None
    replayed_at: datetime | None
    cause_id: str | None


visible = (
    outbox.c.position,
    outbox.c.event_id,
    outbox.c.topic.label("type"),
    outbox.c.ordering_key,
    outbox.c.occurred_at,
    outbox.c.recorded_at,
    outbox.c.published_at,
    outbox.c.attempts,
    outbox.c.next_attempt_at,
    outbox.c.parked_at,
    outbox.c.discarded_at,
    outbox.c.last_error,
    outbox.c.aggregate_version,
    outbox.c.request,
    outbox.c.attributes["ce-traceparent"].astext.label("traceparent"),
    outbox.c.message_id,
    outbox.c.replayed_at,
    literal_column("CASE WHEN payload IS JSON THEN CAST(payload AS jsonb) ->> 'cause_id' END", Text).label("cause_id"),
)


def lane_of(ordering_key: str) -> int:
    return hashlib.sha256(ordering_key.encode()).digest()[0] % LANES


_INSERT = """
    INSERT INTO outbox (
        event_id, topic, ordering_key, lane, attributes, payload, occurred_at, aggregate_version, request)
    SELECT *, $9::jsonb FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::smallint[], $5::jsonb[], $6::text[], $7::timestamptz[], $8::integer[])
"""


def insert(source: str, recorded: Sequence[Recorded]) -> Statement:
    """The statement that inserts events in the order given. The event type names the topic.

    Run it after the aggregate's row was written: its row lock makes the next change of the same aggregate wait for our
    commit, so that the positions of one key rise in the order of its changes, across transactions too.
    """
    request = current_request()
    context = [
        attributes(
            id=item.id,
            source=source,
            type=item.event.type,
            version=item.event.version,
            subject=item.key,
            sequence=item.sequence,
            time=item.occurred_at,
            traceparent=telemetry.create(item.event.type, item.id, item.key, item.traceparent),
        )
        for item in recorded
    ]
    return _INSERT, (
        [item.id for item in recorded],
        [item.event.type for item in recorded],
        [item.key for item in recorded],
        [lane_of(item.key) for item in recorded],
        [msgspec.json.encode(one).decode() for one in context],
        [msgspec.json.encode(item.event).decode() for item in recorded],
        [item.occurred_at for item in recorded],
        [item.sequence for item in recorded],
        None if request is None else msgspec.json.encode(request).decode(),
    )


async def rows(
    connection: AsyncConnection,
    *,
    event_ids: Collection[UUID] = (),
    ordering_key: str | None = None,
    parked: bool = False,
    newest: bool = False,
    limit: int = 100,
) -> list[OutboxRow]:
    """Oldest first; with `newest`, newest first."""
    statement = select(*visible).order_by(outbox.c.position.desc() if newest else outbox.c.position).limit(limit)
    if event_ids:
        statement = statement.where(outbox.c.event_id.in_(event_ids))
    if ordering_key is not None:
        statement = statement.where(outbox.c.ordering_key == ordering_key)
    if parked:
        statement = statement.where(
            outbox.c.parked_at.is_not(None), outbox.c.published_at.is_(None), outbox.c.discarded_at.is_(None)
        )
    return [OutboxRow(**row) for row in (await connection.execute(statement)).mappings()]


@dataclass(frozen=True, slots=True)
class OutboxCounts:
    """The relay publishes `waiting` rows; `parked` rows need an operator."""

    recorded: int
    published: int
    waiting: int
    parked: int
    discarded: int
    oldest_waiting_seconds: float | None


_COUNT = text("""
    SELECT count(*) AS recorded,
        count(published_at) AS published,
        count(*) FILTER (WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NULL) AS waiting,
        count(*) FILTER (WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NOT NULL) AS parked,
        count(discarded_at) AS discarded,
        CAST(extract(epoch FROM clock_timestamp() - min(coalesce(replayed_at, recorded_at)) FILTER (
            WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NULL)) AS float) AS oldest_waiting_seconds
    FROM outbox
""")


async def counts(connection: AsyncConnection) -> OutboxCounts:
    """Exact counts. Reads the whole table, so do not call it in a loop."""
    return OutboxCounts(**(await connection.execute(_COUNT)).mappings().one())


async def count_topics(connection: AsyncConnection, *, held: bool = False) -> dict[str, int]:
    """The number of recorded events of each topic; with `held`, only those that are parked or discarded."""
    statement = select(outbox.c.topic, func.count()).group_by(outbox.c.topic)
    if held:
        is_held = outbox.c.parked_at.is_not(None) | outbox.c.discarded_at.is_not(None)
        statement = statement.where(outbox.c.published_at.is_(None), is_held)
    return dict(tuple(row) for row in await connection.execute(statement))
