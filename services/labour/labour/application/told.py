"""Who was told what: the Labour service's own picture, made from `notification.*` events, so that it never has to ask.

News of one message may arrive in any order. A row only ever moves forward: sent, then delivered or failed.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from uuid import UUID

import msgspec
from sqlalchemy import select, text
from sqlalchemy.ext.asyncio import AsyncSession

from contracts.events import Event, NotificationDelivered, NotificationFailed, NotificationSent
from labour.application.access import Action, authorize
from labour.storage import subscriber_table, told_table
from messaging.consumer import Received
from messaging.unit_of_work import UnitOfWork

TOPICS = (NotificationSent.type, NotificationDelivered.type, NotificationFailed.type)


class News(StrEnum):
    SENT = "sent"
    DELIVERED = "delivered"
    FAILED = "failed"


RANKS = {News.SENT: 1, News.DELIVERED: 2, News.FAILED: 2}

_KINDS = {
    **dict.fromkeys(("notification_id", "labour_id", "person_id", "event_id"), "uuid"),
    **dict.fromkeys(("event_type", "channel", "news", "reason"), "text"),
    "rank": "smallint",
    "at": "timestamptz",
}

# Of several news about one message in a batch the furthest counts; of those in the table, only what is further.
_SAVE = text(f"""
    INSERT INTO told ({", ".join(_KINDS)})
    SELECT DISTINCT ON (notification_id) *
    FROM unnest({", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _KINDS.items())}) AS news ({", ".join(_KINDS)})
    ORDER BY notification_id, rank DESC
    ON CONFLICT (notification_id) DO UPDATE
    SET news = excluded.news, rank = excluded.rank, at = excluded.at, reason = excluded.reason
    WHERE told.rank < excluded.rank
""")  # noqa: S608


class ToldRow(msgspec.Struct, frozen=True):
    """For operators: the ids with which it can be followed, and no name. `event_id` is what the message was about."""

    notification_id: UUID
    labour_id: UUID
    person_id: UUID
    event_id: UUID
    event_type: str
    channel: str
    news: News
    at: datetime


class ToldView(msgspec.Struct, frozen=True):
    person_id: UUID
    name: str
    event_type: str
    channel: str
    news: News
    at: datetime
    reason: str | None


def row(event: NotificationSent | NotificationDelivered | NotificationFailed) -> dict[str, object]:
    match event:
        case NotificationSent():
            news, at, reason = News.SENT, event.sent_at, None
        case NotificationDelivered():
            news, at, reason = News.DELIVERED, event.delivered_at, None
        case NotificationFailed():
            news, at, reason = News.FAILED, event.failed_at, event.reason
    return {
        "notification_id": event.notification_id,
        "labour_id": event.labour_id,
        "person_id": event.person_id,
        "event_id": event.cause_id,
        "event_type": event.cause_type,
        "channel": event.channel,
        "news": news.value,
        "rank": RANKS[news],
        "at": at,
        "reason": reason,
    }


async def react(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
    rows = [
        row(received.event)
        for received in events
        if isinstance(received.event, NotificationSent | NotificationDelivered | NotificationFailed)
    ]
    await uow.session.execute(_SAVE, {name: [one[name] for one in rows] for name in _KINDS})
    return ()


async def rows(session: AsyncSession, labour_id: UUID) -> list[ToldRow]:
    """In the order in which the messages were made."""
    visible = [told_table.c[name] for name in ToldRow.__struct_fields__]
    found = await session.execute(
        select(*visible).where(told_table.c.labour_id == labour_id).order_by(told_table.c.notification_id)
    )
    return [ToldRow(**{**row, "news": News(row["news"])}) for row in found.mappings()]


async def list_told(session: AsyncSession, caller: str, labour_id: UUID) -> list[ToldView]:
    await authorize(session, caller, labour_id, Action.MANAGE)
    return await told_about(session, labour_id)


async def told_about(session: AsyncSession, labour_id: UUID) -> list[ToldView]:
    """In the order in which the messages were made."""
    people = select(subscriber_table.c.id, subscriber_table.c.name).where(subscriber_table.c.labour_id == labour_id)
    names: dict[UUID, str] = dict(tuple(person) for person in await session.execute(people))
    rows = await session.execute(
        select(told_table).where(told_table.c.labour_id == labour_id).order_by(told_table.c.notification_id)
    )
    return [
        ToldView(
            one["person_id"],
            names.get(one["person_id"], ""),
            one["event_type"],
            one["channel"],
            News(one["news"]),
            one["at"],
            one["reason"],
        )
        for one in rows.mappings()
    ]
