"""The delivery status of every message about a labour: a projection of `notification.*` events, so that no service is called.

The events of one message may arrive in any order. Its status only moves to a higher rank: superseded, sent, then delivered or
failed. A superseded message was not sent because a newer one was; if it was sent after all, `sent` follows.
"""

from collections.abc import Collection, Sequence
from datetime import datetime
from enum import StrEnum
from typing import Annotated, Any, Literal, get_args
from uuid import UUID

import msgspec
from sqlalchemy import Select, and_, func, select
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncConnection

from contracts.events import (
    Event,
    NotificationDelivered,
    NotificationFailed,
    NotificationSent,
    NotificationSuperseded,
)
from labour.application.access import Action, authorize
from labour.storage import subscriber_table, told_table
from messaging.consumer import Received
from messaging.unit_of_work import UnitOfWork

StatusEvent = NotificationSent | NotificationDelivered | NotificationFailed | NotificationSuperseded
TOPICS = tuple(event.type for event in get_args(StatusEvent))


class DeliveryStatus(StrEnum):
    SUPERSEDED = "superseded"
    SENT = "sent"
    DELIVERED = "delivered"
    FAILED = "failed"


# A beginning, a birth and 100 announcements to 50 people are 5,100 messages; the questions for consent come on top.
TOLD_LIMIT = 6000  # messages in a page

RANKS = {
    DeliveryStatus.SUPERSEDED: 0,
    DeliveryStatus.SENT: 1,
    DeliveryStatus.DELIVERED: 2,
    DeliveryStatus.FAILED: 2,
}

_POSTGRES = postgresql.dialect()  # type: ignore[no-untyped-call]
_TYPES = {column.name: column.type.compile(_POSTGRES) for column in told_table.columns}

# Keeps the highest-ranked status of a message, of those in the batch and in the table; a lower one never overwrites it.
_SAVE = f"""
    INSERT INTO told ({", ".join(_TYPES)})
    SELECT DISTINCT ON (notification_id) *
    FROM unnest({", ".join(f"${number}::{kind}[]" for number, kind in enumerate(_TYPES.values(), 1))})
        AS batch ({", ".join(_TYPES)})
    ORDER BY notification_id, rank DESC
    ON CONFLICT (notification_id) DO UPDATE
    SET status = excluded.status, rank = excluded.rank, at = excluded.at, reason = excluded.reason
    WHERE told.rank < excluded.rank
"""  # noqa: S608


class ToldRow(msgspec.Struct, frozen=True):
    """The status of one message as operators see it: with ids, without a name. The message is about the event `event_id`."""

    notification_id: UUID
    labour_id: UUID
    person_id: UUID
    event_id: UUID
    event_type: str
    channel: str
    status: DeliveryStatus
    at: datetime


class ToldView(msgspec.Struct, frozen=True):
    """The status of one message as the mother sees it. `name` is empty if the person is no longer known. `notification_id` has
    the order in which messages are created.

    `event_type` is `consent.requested` for the message that asks the person whether they agree to be texted.
    """

    notification_id: UUID
    person_id: UUID
    name: str
    event_type: str
    channel: str
    status: DeliveryStatus
    at: datetime
    reason: str | None
    news: Annotated[
        Literal["superseded", "sent", "delivered", "failed"],
        msgspec.Meta(
            description="Deprecated since 1.1: use `status`, which has the same value.",
            extra_json_schema={"deprecated": True, "extra": {"deprecated": True}},  # Litestar reads `extra`
        ),
    ]


def to_row(event: StatusEvent) -> dict[str, object]:
    match event:
        case NotificationSent():
            status, at, reason = DeliveryStatus.SENT, event.sent_at, None
        case NotificationDelivered():
            status, at, reason = DeliveryStatus.DELIVERED, event.delivered_at, None
        case NotificationFailed():
            status, at, reason = DeliveryStatus.FAILED, event.failed_at, event.reason
        case NotificationSuperseded():
            status, at, reason = DeliveryStatus.SUPERSEDED, event.superseded_at, event.reason
    return {
        "notification_id": event.notification_id,
        "labour_id": event.labour_id,
        "person_id": event.person_id,
        "event_id": event.cause_id,
        "event_type": event.cause_type,
        "channel": event.channel,
        "status": status.value,
        "rank": RANKS[status],
        "at": at,
        "reason": reason,
    }


async def react(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
    rows = [to_row(received.event) for received in events if isinstance(received.event, StatusEvent)]
    await uow.connection.execute(_SAVE, *([row[name] for row in rows] for name in _TYPES))
    return ()


async def list_rows(connection: AsyncConnection, labour_id: UUID) -> list[ToldRow]:
    """The status of each message about a labour, in the order in which the messages were created."""
    columns = [told_table.c[name] for name in ToldRow.__struct_fields__]
    return msgspec.convert(await _in_order(connection, labour_id, select(*columns)), list[ToldRow])


async def list_told(
    connection: AsyncConnection, caller: str, labour_id: UUID, *, limit: int, after: UUID | None
) -> list[ToldView]:
    """As `told_about`, for the mother only."""
    await authorize(connection, caller, labour_id, Action.MANAGE)
    return await told_about(connection, labour_id, limit=limit, after=after)


async def told_about(
    connection: AsyncConnection, labour_id: UUID, *, limit: int = TOLD_LIMIT, after: UUID | None = None
) -> list[ToldView]:
    """The status of each message, in the order of creation. The caller of this function must have authorised the reader."""
    person = and_(subscriber_table.c.id == told_table.c.person_id, subscriber_table.c.labour_id == labour_id)
    name, news = func.coalesce(subscriber_table.c.name, "").label("name"), told_table.c.status.label("news")
    statement = select(told_table, name, news).outerjoin(subscriber_table, person).limit(limit)
    if after is not None:
        statement = statement.where(told_table.c.notification_id > after)
    return msgspec.convert(await _in_order(connection, labour_id, statement), list[ToldView])


async def _in_order(connection: AsyncConnection, labour_id: UUID, statement: Select[Any]) -> list[dict[str, Any]]:
    rows = await connection.execute(
        statement.where(told_table.c.labour_id == labour_id).order_by(told_table.c.notification_id)
    )
    return [{str(name): value for name, value in row.items()} for row in rows.mappings()]  # plain str for msgspec
