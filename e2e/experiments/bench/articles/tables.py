"""The tables of the articles' designs, mapped by the ORM."""

import asyncio
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any
from uuid import UUID, uuid4

from sqlalchemy import DateTime, Index, text
from sqlalchemy.dialects.postgresql import JSONB
from sqlalchemy.ext.asyncio import AsyncEngine
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column


class Status(StrEnum):
    PROCESSING = "PROCESSING"
    COMPLETED = "COMPLETED"


class Base(DeclarativeBase):
    type_annotation_map = {datetime: DateTime(timezone=True), dict[str, Any]: JSONB}  # noqa: RUF012


class Labour(Base):
    __tablename__ = "labours"

    id: Mapped[UUID] = mapped_column(primary_key=True)
    mother_id: Mapped[str] = mapped_column(index=True)
    mother_name: Mapped[str]
    first_labour: Mapped[bool]
    phase: Mapped[str]
    begun_at: Mapped[datetime | None]
    completed_at: Mapped[datetime | None]
    notes: Mapped[str | None]


class DomainEvent(Base):
    """The transactional outbox."""

    __tablename__ = "domain_events"
    __table_args__ = (Index("domain_events_unpublished", "created_at", postgresql_where=text("published_at IS NULL")),)

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    aggregate_id: Mapped[str]
    type: Mapped[str]
    data: Mapped[dict[str, Any]]
    created_at: Mapped[datetime] = mapped_column(default=lambda: datetime.now(UTC))
    published_at: Mapped[datetime | None]


class ProcessedEvent(Base):
    __tablename__ = "processed_events"

    event_id: Mapped[str] = mapped_column(primary_key=True)
    status: Mapped[str]


class Notification(Base):
    __tablename__ = "notifications"

    id: Mapped[UUID] = mapped_column(primary_key=True, default=uuid4)
    labour_id: Mapped[str] = mapped_column(index=True)
    recipient: Mapped[str]
    phone: Mapped[str]
    body: Mapped[str]
    status: Mapped[str] = mapped_column(default="CREATED")
    external_id: Mapped[str | None]


async def connect(engine: AsyncEngine, connections: int) -> None:
    """Fill the pool, so that no run is charged for connecting."""

    async def ping() -> None:
        async with engine.connect() as connection:
            await connection.execute(text("SELECT 1"))

    await asyncio.gather(*(ping() for _ in range(connections)))
