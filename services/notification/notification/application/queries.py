"""The read side of the ledger. A view names the person and the event, but has neither the phone number nor the text."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import ColumnElement, Double, func, select
from sqlalchemy.ext.asyncio import AsyncConnection

from notification.domain.errors import NoSuchNotification
from notification.domain.notification import UNSETTLED, NotificationState
from notification.storage import notification_table


class NotificationView(msgspec.Struct, frozen=True):
    """`failure` is the reason why the message failed or was superseded or, before that, the result of the last attempt that did
    not succeed.
    """

    id: UUID
    event_id: UUID
    event_type: str
    labour_id: UUID
    person_id: UUID
    person_name: str
    channel: str
    state: NotificationState
    attempt: int
    segments: int
    sid: str | None
    failure: str | None
    created_at: datetime
    sending_at: datetime | None
    in_doubt_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None


class LedgerCounts(msgspec.Struct, frozen=True):
    """`oldest_unsettled_seconds` is the age of the oldest message that is PENDING, SENDING or IN_DOUBT. A message that waited for
    consent is as old as the consent.
    """

    states: dict[NotificationState, int]
    oldest_unsettled_seconds: float | None


_COLUMNS = notification_table.c
_VISIBLE = [_COLUMNS[name] for name in NotificationView.__struct_fields__]


async def of_labour(connection: AsyncConnection, labour_id: UUID) -> list[NotificationView]:
    return await _views(connection, _COLUMNS.labour_id == labour_id)


async def in_state(connection: AsyncConnection, state: NotificationState, limit: int) -> list[NotificationView]:
    return await _views(connection, _COLUMNS.state == state, limit)


async def about_events(connection: AsyncConnection, event_ids: Collection[UUID]) -> list[NotificationView]:
    return await _views(connection, _COLUMNS.event_id.in_(event_ids))


async def one(connection: AsyncConnection, notification_id: UUID) -> NotificationView:
    for view in await _views(connection, _COLUMNS.id == notification_id):
        return view
    raise NoSuchNotification(notification_id)


async def counts(connection: AsyncConnection) -> LedgerCounts:
    rows = await connection.execute(select(_COLUMNS.state, func.count()).group_by(_COLUMNS.state))
    counted: dict[str, int] = dict(tuple(row) for row in rows)
    since = func.min(func.coalesce(_COLUMNS.released_at, _COLUMNS.created_at))
    age = func.extract("epoch", func.clock_timestamp() - since).cast(Double)
    oldest = await connection.execute(select(age).where(_COLUMNS.state.in_(UNSETTLED)))
    return LedgerCounts({state: counted.get(state, 0) for state in NotificationState}, oldest.scalar_one())


async def _views(
    connection: AsyncConnection, condition: ColumnElement[bool], limit: int | None = None
) -> list[NotificationView]:
    """The messages that fulfil the condition, oldest first."""
    rows = await connection.execute(select(*_VISIBLE).where(condition).order_by(_COLUMNS.id).limit(limit))
    return [NotificationView(**{**row, "state": NotificationState(row["state"])}) for row in rows.mappings()]
