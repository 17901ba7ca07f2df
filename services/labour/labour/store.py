"""Tables, the mapping of the aggregate onto them, and its repository."""

from uuid import UUID

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
)
from sqlalchemy.orm import registry, relationship

from labour.contractions import Contraction, Phase
from labour.model import Announcement, Labour, Subscriber
from messaging.outbox import outbox
from messaging.unit_of_work import UnitOfWork

mapper = registry()
metadata = mapper.metadata
outbox.to_metadata(metadata)

labour_table = Table(
    "labour",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("mother_name", Text, nullable=False),
    Column("first_labour", Boolean, nullable=False),
    Column(
        "phase",
        Enum(Phase, native_enum=False, length=20, values_callable=lambda phases: [phase.value for phase in phases]),
        nullable=False,
    ),
    Column("planned_at", DateTime(timezone=True), nullable=False),
    Column("begun_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("announced_at", DateTime(timezone=True)),
    Column("roster_version", Integer, nullable=False),
    Column("version", Integer, nullable=False),
)

subscriber_table = Table(
    "subscriber",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False),
    Column("name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("subscribed_at", DateTime(timezone=True), nullable=False),
    UniqueConstraint("labour_id", "phone", name="subscriber_once_per_labour"),
)


contraction_table = Table(
    "contraction",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False, index=True),
    Column("started_at", DateTime(timezone=True), nullable=False),
    Column("ended_at", DateTime(timezone=True)),
    Column("intensity", SmallInteger),
)

announcement_table = Table(
    "announcement",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False, index=True),
    Column("text", Text, nullable=False),
    Column("announced_at", DateTime(timezone=True), nullable=False),
)

# Once, on import; the model itself knows nothing of it, so its rules are tested without a database.
mapper.map_imperatively(Subscriber, subscriber_table)
mapper.map_imperatively(Contraction, contraction_table)
mapper.map_imperatively(Announcement, announcement_table)
mapper.map_imperatively(
    Labour,
    labour_table,
    version_id_col=labour_table.c.version,
    version_id_generator=False,  # the model counts: also what changes only its parts must refuse a second writer
    properties={
        "subscribers": relationship(
            Subscriber, lazy="selectin", cascade="all, delete-orphan", order_by=subscriber_table.c.id
        ),
        "contractions": relationship(
            Contraction, lazy="selectin", cascade="all, delete-orphan", order_by=contraction_table.c.started_at
        ),
    },
)


class NoSuchLabour(Exception):
    def __init__(self, labour_id: UUID) -> None:
        super().__init__(f"There is no labour {labour_id}.")
        self.labour_id = labour_id


class VersionChanged(Exception):
    """The caller has seen another version than there is now."""


class Labours:
    """Tells the unit of work about every labour it hands out, so that no event is forgotten.

    With `seen`, it hands out a labour only in that version: what the caller decided was decided about that one.
    """

    def __init__(self, uow: UnitOfWork, seen: int | None = None) -> None:
        self._uow, self._seen = uow, seen

    def add(self, labour: Labour) -> None:
        self._uow.session.add(labour)
        self._uow.see(labour)

    def keep(self, announcement: Announcement) -> None:
        """Kept beside the labour, not in it: there may be many, and no rule needs them all."""
        self._uow.session.add(announcement)

    async def get(self, labour_id: UUID) -> Labour:
        labour = await self._uow.session.get(Labour, labour_id)
        if labour is None:
            raise NoSuchLabour(labour_id)
        if self._seen is not None and labour.version != self._seen:
            raise VersionChanged
        self._uow.see(labour)
        return labour
