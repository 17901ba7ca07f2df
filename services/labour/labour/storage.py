"""Tables, the mapping of the aggregate to them, and its repository."""

from enum import StrEnum
from uuid import UUID

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    LargeBinary,
    Select,
    SmallInteger,
    Table,
    Text,
    Uuid,
    select,
)
from sqlalchemy.orm import registry, relationship

from labour.domain.contraction import Contraction, Phase
from labour.domain.errors import NoSuchLabour, UnfinishedLabour
from labour.domain.invite import Invite, hash_token
from labour.domain.labour import Labour
from labour.domain.subscriber import Channel, Role, Subscriber, SubscriberState
from labour.domain.update import Update, UpdateKind
from messaging.outbox import outbox
from messaging.unit_of_work import UnitOfWork

mapper = registry()
metadata = mapper.metadata
outbox.to_metadata(metadata)


def _text(choices: type[StrEnum]) -> Enum:
    return Enum(choices, native_enum=False, length=20, values_callable=lambda members: [one.value for one in members])


labour_table = Table(
    "labour",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("mother_id", Text, nullable=False, index=True),
    Column("mother_name", Text, nullable=False),
    Column("first_labour", Boolean, nullable=False),
    Column("phase", _text(Phase), nullable=False),
    Column("planned_at", DateTime(timezone=True), nullable=False),
    Column("begun_at", DateTime(timezone=True)),
    Column("completed_at", DateTime(timezone=True)),
    Column("announced_at", DateTime(timezone=True)),
    Column("notes", Text),
    Column("roster_version", Integer, nullable=False),
    Column("version", Integer, nullable=False),
)

subscriber_table = Table(
    "subscriber",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False, index=True),
    Column("user_id", Text, index=True),
    Column("name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("state", _text(SubscriberState), nullable=False),
    Column("role", _text(Role), nullable=False),
    Column("channel", _text(Channel), nullable=False),
    Column("subscribed_at", DateTime(timezone=True), nullable=False),
)

invite_table = Table(
    "invite",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False, index=True),
    Column("token_hash", LargeBinary, nullable=False, unique=True),
    Column("created_at", DateTime(timezone=True), nullable=False),
    Column("expires_at", DateTime(timezone=True), nullable=False),
    Column("revoked_at", DateTime(timezone=True)),
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

update_table = Table(
    "labour_update",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("labour_id", Uuid, ForeignKey("labour.id"), nullable=False, index=True),
    Column("kind", _text(UpdateKind), nullable=False),
    Column("text", Text, nullable=False),
    Column("posted_at", DateTime(timezone=True), nullable=False),
)

# A projection of `notification.*` events; no aggregate.
told_table = Table(
    "told",
    metadata,
    Column("notification_id", Uuid, primary_key=True),
    Column("labour_id", Uuid, nullable=False, index=True),
    Column("person_id", Uuid, nullable=False),
    Column("event_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("status", Text, nullable=False),
    Column("rank", SmallInteger, nullable=False),
    Column("at", DateTime(timezone=True), nullable=False),
    Column("reason", Text),
)

# Imperative: the domain does not import SQLAlchemy, so its rules are tested without a database.
mapper.map_imperatively(Subscriber, subscriber_table)
mapper.map_imperatively(Contraction, contraction_table)
mapper.map_imperatively(Invite, invite_table)
mapper.map_imperatively(Update, update_table)
mapper.map_imperatively(
    Labour,
    labour_table,
    version_id_col=labour_table.c.version,
    version_id_generator=False,  # the aggregate counts: a change of its parts alone must refuse a second writer, too
    properties={
        "subscribers": relationship(
            Subscriber, lazy="selectin", cascade="all, delete-orphan", order_by=subscriber_table.c.id
        ),
        "contractions": relationship(
            Contraction, lazy="selectin", cascade="all, delete-orphan", order_by=contraction_table.c.started_at
        ),
        "invites": relationship(Invite, lazy="selectin", cascade="all, delete-orphan", order_by=invite_table.c.id),
    },
)


class Labours:
    """The repository. Registers every labour with the unit of work, which collects its events at the end.

    It does not know who asks: `labour.application.access` decides who may have a labour.
    """

    def __init__(self, uow: UnitOfWork) -> None:
        self._uow = uow

    async def add(self, labour: Labour) -> None:
        statement = select(labour_table.c.id).where(
            labour_table.c.mother_id == labour.mother_id, labour_table.c.phase != Phase.COMPLETE
        )
        if (unfinished := (await self._uow.session.execute(statement)).scalar()) is not None:
            raise UnfinishedLabour(unfinished)
        self._uow.session.add(labour)
        self._uow.see(labour)

    async def get(self, labour_id: UUID) -> Labour:
        labour = await self._uow.session.get(Labour, labour_id)
        if labour is None:
            raise NoSuchLabour(labour_id)
        self._uow.see(labour)
        return labour

    async def of_invite(self, token: str) -> Labour | None:
        return await self._first(select(invite_table.c.labour_id).where(invite_table.c.token_hash == hash_token(token)))

    async def of_subscription(self, subscriber_id: UUID, user_id: str) -> Labour | None:
        """None also if the subscription belongs to another user."""
        own = (subscriber_table.c.id == subscriber_id, subscriber_table.c.user_id == user_id)
        return await self._first(select(subscriber_table.c.labour_id).where(*own))

    async def get_update(self, labour_id: UUID, update_id: UUID) -> Update | None:
        update = await self._uow.session.get(Update, update_id)
        return update if update is not None and update.labour_id == labour_id else None

    def add_update(self, update: Update) -> None:
        self._uow.session.add(update)

    async def delete_update(self, update: Update) -> None:
        await self._uow.session.delete(update)

    async def _first(self, labour_ids: Select[UUID]) -> Labour | None:
        labour_id = (await self._uow.session.execute(labour_ids)).scalar()
        return None if labour_id is None else await self.get(labour_id)
