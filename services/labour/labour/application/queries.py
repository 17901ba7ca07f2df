"""The read side: plain rows without aggregates, and for each caller only what they may read."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from typing import Any
from uuid import UUID

from msgspec import Struct
from sqlalchemy import Column, Table, select
from sqlalchemy.ext.asyncio import AsyncConnection

from labour.application.access import Action, Relation, authorize
from labour.application.views import (
    LISTED,
    ContractionView,
    InviteView,
    LabourPage,
    LabourView,
    SubscribedLabourView,
    SubscriberView,
    SubscriptionView,
    UpdateView,
)
from labour.domain.advice import Advice, advise
from labour.domain.contraction import Contraction
from labour.domain.labour import CONTRACTION_LIMIT
from labour.domain.update import UpdateKind
from labour.storage import contraction_table, invite_table, labour_table, subscriber_table, update_table


async def get_labour(connection: AsyncConnection, caller: str, labour_id: UUID) -> LabourView | SubscribedLabourView:
    return await labour_as_seen_by(connection, await authorize(connection, caller, labour_id, Action.READ), labour_id)


async def labour_as_seen_by(
    connection: AsyncConnection, relation: Relation, labour_id: UUID
) -> LabourView | SubscribedLabourView:
    if relation.may(Action.MANAGE):
        return (await _labours(connection, [labour_id]))[0]
    columns = _columns(labour_table, SubscribedLabourView, "view")
    row = (await connection.execute(select(*columns).where(labour_table.c.id == labour_id))).one()
    return SubscribedLabourView(*row)


async def list_labours(connection: AsyncConnection, caller: str, *, limit: int, after: UUID | None) -> LabourPage:
    """The labours of which the caller is the mother, newest first: ids are UUIDv7, so their order is the order of planning."""
    statement = select(labour_table.c.id).where(labour_table.c.mother_id == caller)
    if after is not None:
        statement = statement.where(labour_table.c.id < after)
    ids = (await connection.execute(statement.order_by(labour_table.c.id.desc()).limit(limit + 1))).scalars().all()
    items = await _labours(connection, ids[:limit])
    return LabourPage(items, items[-1].id if len(ids) > limit else None)


# The lists below return up to `limit` items that come `after` one that the caller has seen.


async def list_subscriptions(
    connection: AsyncConnection, caller: str, *, limit: int, after: UUID | None
) -> list[SubscriptionView]:
    """The caller's subscriptions and requests, oldest first."""
    own = _columns(subscriber_table, SubscriptionView, "mother_name")
    statement = select(*own, labour_table.c.mother_name).join_from(subscriber_table, labour_table)
    statement = statement.where(subscriber_table.c.user_id == caller).order_by(subscriber_table.c.id).limit(limit)
    if after is not None:
        statement = statement.where(subscriber_table.c.id > after)
    return [SubscriptionView(**row).discreet() for row in (await connection.execute(statement)).mappings()]


async def list_contractions(
    connection: AsyncConnection,
    caller: str,
    labour_id: UUID,
    *,
    limit: int = CONTRACTION_LIMIT,
    after: datetime | None = None,
) -> list[ContractionView]:
    """The contractions in the order of their starts, which all differ because contractions do not overlap."""
    await authorize(connection, caller, labour_id, Action.READ_CONTRACTIONS)
    statement = select(*_columns(contraction_table, ContractionView)).where(contraction_table.c.labour_id == labour_id)
    if after is not None:
        statement = statement.where(contraction_table.c.started_at > after)
    rows = await connection.execute(statement.order_by(contraction_table.c.started_at).limit(limit))
    return [ContractionView(*row) for row in rows]


async def get_advice(connection: AsyncConnection, caller: str, labour_id: UUID, now: datetime) -> list[Advice]:
    views = await list_contractions(connection, caller, labour_id)
    contractions = [Contraction(one.started_at, one.ended_at, one.intensity) for one in views]
    first = select(labour_table.c.first_labour).where(labour_table.c.id == labour_id)
    return advise(contractions, first_labour=bool((await connection.execute(first)).scalar()), now=now)


async def list_updates(
    connection: AsyncConnection, caller: str, labour_id: UUID, *, limit: int = 100, after: UUID | None = None
) -> list[UpdateView]:
    """The updates of a labour, newest first; private notes for the mother only."""
    relation = await authorize(connection, caller, labour_id, Action.READ)
    statement = select(*_columns(update_table, UpdateView)).where(update_table.c.labour_id == labour_id)
    if not relation.may(Action.MANAGE):
        statement = statement.where(update_table.c.kind != UpdateKind.PRIVATE)
    if after is not None:
        statement = statement.where(update_table.c.id < after)
    rows = await connection.execute(statement.order_by(update_table.c.id.desc()).limit(limit))
    return [UpdateView(*row) for row in rows]


async def list_invites(
    connection: AsyncConnection, caller: str, labour_id: UUID, *, limit: int, after: UUID | None
) -> list[InviteView]:
    await authorize(connection, caller, labour_id, Action.MANAGE)
    statement = select(*_columns(invite_table, InviteView)).where(invite_table.c.labour_id == labour_id)
    if after is not None:
        statement = statement.where(invite_table.c.id > after)
    return [InviteView(*row) for row in await connection.execute(statement.order_by(invite_table.c.id).limit(limit))]


async def _labours(connection: AsyncConnection, labour_ids: Collection[UUID]) -> list[LabourView]:
    """The labours with these ids, newest first."""
    subscribers = defaultdict[UUID, list[SubscriberView]](list)
    statement = (
        select(subscriber_table.c.labour_id, *_columns(subscriber_table, SubscriberView))
        .where(subscriber_table.c.labour_id.in_(labour_ids), subscriber_table.c.state.in_(LISTED))
        .order_by(subscriber_table.c.id)
    )
    for labour_id, *subscriber in await connection.execute(statement):
        subscribers[labour_id].append(SubscriberView(*subscriber))
    rows = await connection.execute(
        select(*_columns(labour_table, LabourView, "subscribers", "view"))
        .where(labour_table.c.id.in_(labour_ids))
        .order_by(labour_table.c.id.desc())
    )
    return [LabourView(**row, subscribers=subscribers[row["id"]]) for row in rows.mappings()]


def _columns(table: Table, view: type[Struct], *without: str) -> list[Column[Any]]:
    return [table.c[name] for name in view.__struct_fields__ if name not in without]
