"""The read side of the ledger. Phone numbers and texts stay inside: a reader sees who, what about, and how far it got."""

from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import Double, RowMapping, func, select
from sqlalchemy.ext.asyncio import AsyncSession

from notification.delivery.ledger import ledger
from notification.domain.notification import State


class NotificationView(msgspec.Struct, frozen=True):
    """`failure` is why it failed, or the last thing that went wrong on the way."""

    id: UUID
    event_id: UUID
    event_type: str
    labour_id: UUID
    person_id: UUID
    person_name: str
    channel: str
    state: State
    attempt: int
    segments: int
    sid: str | None
    failure: str | None
    created_at: datetime
    sending_at: datetime | None
    in_doubt_at: datetime | None
    sent_at: datetime | None
    delivered_at: datetime | None


_VISIBLE = [ledger.c[name] for name in NotificationView.__struct_fields__]


async def of_labour(session: AsyncSession, labour_id: UUID) -> list[NotificationView]:
    rows = await session.execute(select(*_VISIBLE).where(ledger.c.labour_id == labour_id).order_by(ledger.c.id))
    return [_view(row) for row in rows.mappings()]


async def in_state(session: AsyncSession, state: State, limit: int) -> list[NotificationView]:
    rows = await session.execute(select(*_VISIBLE).where(ledger.c.state == state).order_by(ledger.c.id).limit(limit))
    return [_view(row) for row in rows.mappings()]


async def about_events(session: AsyncSession, event_ids: Collection[UUID]) -> list[NotificationView]:
    rows = await session.execute(select(*_VISIBLE).where(ledger.c.event_id.in_(event_ids)).order_by(ledger.c.id))
    return [_view(row) for row in rows.mappings()]


class LedgerCounts(msgspec.Struct, frozen=True):
    states: dict[State, int]
    oldest_unsettled_seconds: float | None


async def counts(session: AsyncSession) -> LedgerCounts:
    rows = await session.execute(select(ledger.c.state, func.count()).group_by(ledger.c.state))
    counted: dict[str, int] = dict(tuple(row) for row in rows)
    age = func.extract("epoch", func.clock_timestamp() - func.min(ledger.c.created_at)).cast(Double)
    oldest = await session.execute(
        select(age).where(ledger.c.state.in_((State.PENDING, State.SENDING, State.IN_DOUBT)))
    )
    return LedgerCounts({state: counted.get(state, 0) for state in State}, oldest.scalar_one())


async def one(session: AsyncSession, notification_id: UUID) -> NotificationView | None:
    row = (await session.execute(select(*_VISIBLE).where(ledger.c.id == notification_id))).mappings().one_or_none()
    return None if row is None else _view(row)


def _view(row: RowMapping) -> NotificationView:
    return NotificationView(**{**row, "state": State(row["state"])})
