"""The read side: plain rows, no aggregates; and for each reader only what is theirs to see."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from enum import StrEnum
from uuid import UUID

from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from labour.application.views import (
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
from labour.domain.errors import NotYours
from labour.domain.labour import UpdateKind
from labour.domain.subscriber import Role, State
from labour.storage import NoSuchLabour, contraction_table, invite_table, labour_table, subscriber_table, update_table

CURRENT = (State.REQUESTED, State.APPROVED, State.BLOCKED)


class Access(StrEnum):
    """What somebody is to a labour. To a stranger it does not exist."""

    MOTHER = "mother"
    BIRTH_PARTNER = "birth-partner"
    SUBSCRIBER = "subscriber"


async def access(session: AsyncSession, labour_id: UUID, caller: str, *allowed: Access) -> Access:
    """Raises `NoSuchLabour` for a stranger, and `NotYours` for somebody who may see the labour and not this of it."""
    mother = select(labour_table.c.mother_id).where(labour_table.c.id == labour_id)
    if (mother_id := (await session.execute(mother)).scalar()) is None:
        raise NoSuchLabour(labour_id)
    if mother_id == caller:
        return Access.MOTHER
    role = select(subscriber_table.c.role).where(
        subscriber_table.c.labour_id == labour_id,
        subscriber_table.c.user_id == caller,
        subscriber_table.c.state == State.APPROVED,
    )
    found = (await session.execute(role)).scalar()
    if found is None:
        raise NoSuchLabour(labour_id)
    granted = Access.BIRTH_PARTNER if found is Role.BIRTH_PARTNER else Access.SUBSCRIBER
    if granted not in allowed:
        raise NotYours(labour_id)
    return granted


async def get_labour(session: AsyncSession, labour_id: UUID, caller: str) -> LabourView | SubscribedLabourView:
    granted = await access(session, labour_id, caller, Access.BIRTH_PARTNER, Access.SUBSCRIBER)
    if granted is not Access.MOTHER:
        columns = (labour_table.c[name] for name in SubscribedLabourView.__struct_fields__ if name != "view")
        row = (await session.execute(select(*columns).where(labour_table.c.id == labour_id))).one()
        return SubscribedLabourView(*row)
    return (await _labours(session, [labour_id]))[0]


async def list_labours(session: AsyncSession, caller: str, *, limit: int, after: UUID | None) -> LabourPage:
    """The caller's own, newest first: ids are UUIDv7, so their order is the order of planning."""
    statement = select(labour_table.c.id).where(labour_table.c.mother_id == caller)
    if after is not None:
        statement = statement.where(labour_table.c.id < after)
    ids = (await session.execute(statement.order_by(labour_table.c.id.desc()).limit(limit + 1))).scalars().all()
    items = await _labours(session, ids[:limit])
    return LabourPage(items, items[-1].id if len(ids) > limit else None)


async def list_subscriptions(session: AsyncSession, caller: str) -> list[SubscriptionView]:
    """What the caller asked for or is told about. That somebody is blocked shows as removed."""
    statement = (
        select(
            subscriber_table.c.id,
            subscriber_table.c.labour_id,
            labour_table.c.mother_name,
            subscriber_table.c.state,
            subscriber_table.c.role,
            subscriber_table.c.channel,
        )
        .join_from(subscriber_table, labour_table)
        .where(subscriber_table.c.user_id == caller)
        .order_by(subscriber_table.c.id)
    )
    return [SubscriptionView(*row).discreet() for row in await session.execute(statement)]


async def list_contractions(session: AsyncSession, labour_id: UUID, caller: str) -> list[ContractionView]:
    """In the order in which they started."""
    await access(session, labour_id, caller, Access.BIRTH_PARTNER)
    columns = (contraction_table.c[name] for name in ContractionView.__struct_fields__)
    statement = select(*columns).where(contraction_table.c.labour_id == labour_id)
    return [ContractionView(*row) for row in await session.execute(statement.order_by(contraction_table.c.started_at))]


async def get_advice(session: AsyncSession, labour_id: UUID, caller: str, now: datetime) -> list[Advice]:
    contractions = list[Contraction]()
    for view in await list_contractions(session, labour_id, caller):
        contraction = Contraction(started_at=view.started_at)
        contraction.ended_at, contraction.intensity = view.ended_at, view.intensity
        contractions.append(contraction)
    first = select(labour_table.c.first_labour).where(labour_table.c.id == labour_id)
    return advise(contractions, first_labour=bool((await session.execute(first)).scalar()), now=now)


async def list_updates(session: AsyncSession, labour_id: UUID, caller: str) -> list[UpdateView]:
    """Newest first, the last hundred. Private notes are the mother's alone."""
    granted = await access(session, labour_id, caller, Access.BIRTH_PARTNER, Access.SUBSCRIBER)
    columns = (update_table.c[name] for name in UpdateView.__struct_fields__)
    statement = select(*columns).where(update_table.c.labour_id == labour_id)
    if granted is not Access.MOTHER:
        statement = statement.where(update_table.c.kind != UpdateKind.PRIVATE)
    rows = await session.execute(statement.order_by(update_table.c.id.desc()).limit(100))
    return [UpdateView(*row) for row in rows]


async def list_invites(session: AsyncSession, labour_id: UUID, caller: str) -> list[InviteView]:
    await access(session, labour_id, caller)
    columns = (invite_table.c[name] for name in InviteView.__struct_fields__)
    rows = await session.execute(
        select(*columns).where(invite_table.c.labour_id == labour_id).order_by(invite_table.c.id)
    )
    return [InviteView(*row) for row in rows]


async def _labours(session: AsyncSession, labour_ids: Collection[UUID]) -> list[LabourView]:
    people = defaultdict[UUID, list[SubscriberView]](list)
    columns = (subscriber_table.c[name] for name in SubscriberView.__struct_fields__)
    statement = (
        select(subscriber_table.c.labour_id, *columns)
        .where(subscriber_table.c.labour_id.in_(labour_ids), subscriber_table.c.state.in_(CURRENT))
        .order_by(subscriber_table.c.id)
    )
    for labour_id, *subscriber in await session.execute(statement):
        people[labour_id].append(SubscriberView(*subscriber))
    fields = [name for name in LabourView.__struct_fields__ if name not in ("subscribers", "view")]
    rows = await session.execute(
        select(*(labour_table.c[name] for name in fields))
        .where(labour_table.c.id.in_(labour_ids))
        .order_by(labour_table.c.id.desc())
    )
    return [LabourView(**row, subscribers=people[row["id"]]) for row in rows.mappings()]
