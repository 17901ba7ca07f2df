"""Tables, the mapping of the aggregate onto them, and its repository."""

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
    SmallInteger,
    Table,
    Text,
    Uuid,
    select,
)
from sqlalchemy.orm import registry, relationship

from labour.domain.contraction import Contraction, Phase
from labour.domain.errors import NotYours, UnfinishedLabour
from labour.domain.labour import Labour, Update, UpdateKind
from labour.domain.subscriber import Channel, Invite, Role, State, Subscriber, hash_token
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
    Column("state", _text(State), nullable=False),
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

# Once, on import; the model itself knows nothing of it, so its rules are tested without a database.
mapper.map_imperatively(Subscriber, subscriber_table)
mapper.map_imperatively(Contraction, contraction_table)
mapper.map_imperatively(Invite, invite_table)
mapper.map_imperatively(Update, update_table)
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
        "invites": relationship(Invite, lazy="selectin", cascade="all, delete-orphan", order_by=invite_table.c.id),
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

    `caller` is who asks: only the mother gets her labour, to change it; somebody who may see it hears that it is not theirs, and
    to everybody else it does not exist. With `seen`, a labour is handed out only in that version: what the caller decided was
    decided about that one.
    """

    def __init__(self, uow: UnitOfWork, caller: str, seen: int | None = None) -> None:
        self._uow, self.caller, self._seen = uow, caller, seen

    async def add(self, labour: Labour) -> None:
        statement = select(labour_table.c.id).where(
            labour_table.c.mother_id == labour.mother_id, labour_table.c.phase != Phase.COMPLETE
        )
        if (unfinished := (await self._uow.session.execute(statement)).scalar()) is not None:
            raise UnfinishedLabour(unfinished)
        self._uow.session.add(labour)
        self._uow.see(labour)

    async def get(self, labour_id: UUID) -> Labour:
        """Hers, to change."""
        labour = await self._load(labour_id)
        if labour.mother_id != self.caller:
            if any(one.user_id == self.caller and one.state is State.APPROVED for one in labour.subscribers):
                raise NotYours(labour_id)
            raise NoSuchLabour(labour_id)
        if self._seen is not None and labour.version != self._seen:
            raise VersionChanged
        return labour

    async def invited_to(self, token: str) -> Labour | None:
        """The labour of an invite, for whoever holds its token."""
        statement = select(invite_table.c.labour_id).where(invite_table.c.token_hash == hash_token(token))
        labour_id = (await self._uow.session.execute(statement)).scalar()
        return None if labour_id is None else await self._load(labour_id)

    async def subscribed_to(self, subscriber_id: UUID) -> Labour | None:
        """The labour of the caller's own subscription."""
        statement = select(subscriber_table.c.labour_id).where(
            subscriber_table.c.id == subscriber_id, subscriber_table.c.user_id == self.caller
        )
        labour_id = (await self._uow.session.execute(statement)).scalar()
        return None if labour_id is None else await self._load(labour_id)

    async def update_of(self, labour: Labour, update_id: UUID) -> Update | None:
        """Updates are kept beside the labour, not in it: there may be many, and no rule needs them all."""
        update = await self._uow.session.get(Update, update_id)
        return update if update is not None and update.labour_id == labour.id else None

    def keep(self, update: Update) -> None:
        self._uow.session.add(update)

    async def drop(self, update: Update) -> None:
        await self._uow.session.delete(update)

    async def _load(self, labour_id: UUID) -> Labour:
        labour = await self._uow.session.get(Labour, labour_id)
        if labour is None:
            raise NoSuchLabour(labour_id)
        self._uow.see(labour)
        return labour
