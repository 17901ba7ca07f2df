"""The read side: plain rows, no aggregates."""

from collections import defaultdict
from collections.abc import Collection
from datetime import datetime
from uuid import UUID

import msgspec
from sqlalchemy import select
from sqlalchemy.ext.asyncio import AsyncSession

from labour.advice import Advice, advise
from labour.contractions import Contraction, Phase
from labour.model import Announcement, Labour, Subscriber
from labour.store import NoSuchLabour, announcement_table, contraction_table, labour_table, subscriber_table


class SubscriberView(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    phone: str

    @classmethod
    def of(cls, subscriber: Subscriber) -> "SubscriberView":
        return cls(subscriber.id, subscriber.name, subscriber.phone)


class AnnouncementView(msgspec.Struct, frozen=True):
    id: UUID
    text: str
    announced_at: datetime

    @classmethod
    def of(cls, announcement: Announcement) -> "AnnouncementView":
        return cls(announcement.id, announcement.text, announcement.announced_at)


class ContractionView(msgspec.Struct, frozen=True):
    """One that still runs has no end and no intensity."""

    id: UUID
    started_at: datetime
    ended_at: datetime | None
    intensity: int | None

    @classmethod
    def of(cls, contraction: Contraction) -> "ContractionView":
        return cls(contraction.id, contraction.started_at, contraction.ended_at, contraction.intensity)


class LabourView(msgspec.Struct, frozen=True):
    id: UUID
    mother_name: str
    first_labour: bool
    phase: Phase
    planned_at: datetime
    begun_at: datetime | None
    completed_at: datetime | None
    announced_at: datetime | None
    version: int
    roster_version: int
    subscribers: list[SubscriberView]

    @classmethod
    def of(cls, labour: Labour) -> "LabourView":
        return cls(
            labour.id,
            labour.mother_name,
            labour.first_labour,
            labour.phase,
            labour.planned_at,
            labour.begun_at,
            labour.completed_at,
            labour.announced_at,
            labour.version,
            labour.roster_version,
            [SubscriberView.of(subscriber) for subscriber in labour.subscribers],
        )


class LabourPage(msgspec.Struct, frozen=True):
    """`next` is the `after` of the next page, or null on the last one."""

    items: list[LabourView]
    next: UUID | None


async def get_labour(session: AsyncSession, labour_id: UUID) -> LabourView:
    row = (await session.execute(select(labour_table).where(labour_table.c.id == labour_id))).mappings().one_or_none()
    if row is None:
        raise NoSuchLabour(labour_id)
    people = await _subscribers(session, [labour_id])
    return LabourView(**row, subscribers=people[labour_id])


async def list_labours(session: AsyncSession, *, limit: int, after: UUID | None) -> LabourPage:
    """Newest first: ids are UUIDv7, so their order is the order of planning."""
    statement = select(labour_table).order_by(labour_table.c.id.desc()).limit(limit + 1)
    if after is not None:
        statement = statement.where(labour_table.c.id < after)
    rows = (await session.execute(statement)).mappings().all()
    people = await _subscribers(session, [row["id"] for row in rows[:limit]])
    items = [LabourView(**row, subscribers=people[row["id"]]) for row in rows[:limit]]
    return LabourPage(items, items[-1].id if len(rows) > limit else None)


async def list_contractions(session: AsyncSession, labour_id: UUID) -> list[ContractionView]:
    """In the order in which they started."""
    await get_labour(session, labour_id)
    columns = (contraction_table.c[name] for name in ContractionView.__struct_fields__)
    statement = select(*columns).where(contraction_table.c.labour_id == labour_id)
    return [ContractionView(*row) for row in await session.execute(statement.order_by(contraction_table.c.started_at))]


async def get_advice(session: AsyncSession, labour_id: UUID, now: datetime) -> list[Advice]:
    labour = await get_labour(session, labour_id)
    contractions = list[Contraction]()
    for view in await list_contractions(session, labour_id):
        contraction = Contraction(started_at=view.started_at)
        contraction.ended_at, contraction.intensity = view.ended_at, view.intensity
        contractions.append(contraction)
    return advise(contractions, first_labour=labour.first_labour, now=now)


async def list_announcements(session: AsyncSession, labour_id: UUID) -> list[AnnouncementView]:
    """Newest first, the last hundred."""
    await get_labour(session, labour_id)
    columns = (announcement_table.c.id, announcement_table.c.text, announcement_table.c.announced_at)
    statement = select(*columns).where(announcement_table.c.labour_id == labour_id)
    rows = await session.execute(statement.order_by(announcement_table.c.id.desc()).limit(100))
    return [AnnouncementView(*row) for row in rows]


async def _subscribers(session: AsyncSession, labour_ids: Collection[UUID]) -> dict[UUID, list[SubscriberView]]:
    found = defaultdict[UUID, list[SubscriberView]](list)
    statement = (
        select(subscriber_table).where(subscriber_table.c.labour_id.in_(labour_ids)).order_by(subscriber_table.c.id)
    )
    for row in (await session.execute(statement)).mappings():
        found[row["labour_id"]].append(SubscriberView(row["id"], row["name"], row["phone"]))
    return found
