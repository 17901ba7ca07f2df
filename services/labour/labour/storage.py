"""The tables of the service, the mapping between the aggregate and its rows, and the repository.

A labour is loaded with all its parts by one statement, and saved by one statement for each table in which something changed.
"""

from collections.abc import Callable, Iterable
from enum import StrEnum
from operator import attrgetter
from typing import Any, Generic, TypeVar
from uuid import UUID

from sqlalchemy import (
    Boolean,
    Column,
    DateTime,
    Enum,
    ForeignKey,
    Integer,
    LargeBinary,
    MetaData,
    SmallInteger,
    Table,
    Text,
    Uuid,
)
from sqlalchemy.dialects import postgresql

from labour.domain.contraction import Contraction, Phase
from labour.domain.errors import NoSuchLabour, TooMany, UnfinishedLabour
from labour.domain.invite import Invite, hash_token
from labour.domain.labour import Labour
from labour.domain.subscriber import Channel, Role, Subscriber, SubscriberState
from labour.domain.update import UPDATE_LIMIT, Update, UpdateKind
from messaging.errors import Stale
from messaging.outbox import outbox
from messaging.unit_of_work import UnitOfWork

metadata = MetaData()
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
    Column("announcements", Integer, nullable=False, server_default="0"),
    Column("notes", Text),
    Column("roster_version", Integer, nullable=False),
    Column("contractions_ever", Integer, nullable=False, server_default="0"),
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

T = TypeVar("T")


class _Rows(Generic[T]):
    """Maps objects of one class to rows of one table: each column is an attribute of the same name, except `owner`."""

    def __init__(self, kind: type[T], table: Table, owner: str | None = None) -> None:
        self._kind = kind
        self._columns = [column for column in table.columns if column.name != owner]
        self.names = [column.name for column in self._columns]
        self.values: Callable[[T], tuple[Any, ...]] = attrgetter(*self.names)
        self._enums: dict[str, Any] = {
            one.name: one.type.enum_class for one in self._columns if isinstance(one.type, Enum)
        }
        columns = ", ".join(self.names)
        numbers = ", ".join(f"${number}" for number in range(1, len(self.names) + 1))
        changes = ", ".join(f"{name} = excluded.{name}" for name in self.names)
        postgres = postgresql.dialect()  # type: ignore[no-untyped-call]
        arrays = ", ".join(f"${n}::{one.type.compile(postgres)}[]" for n, one in enumerate(self._columns, start=2))
        # Columns are named, and not selected with `*`: a process may still run when a migration adds one.
        self.row = f"ROW({columns})"
        self.insert = f"INSERT INTO {table.name} ({columns}) VALUES ({numbers})"  # noqa: S608
        self.save_all = (
            f"INSERT INTO {table.name} ({owner}, {columns}) SELECT $1::uuid, * FROM unnest({arrays}) "  # noqa: S608
            f"ON CONFLICT (id) DO UPDATE SET {changes}"
        )
        self.delete_all = f"DELETE FROM {table.name} WHERE id = ANY($1::uuid[])"  # noqa: S608

    def build(self, row: Iterable[Any]) -> T:
        """An object with the values of a row. `__init__` is not called, because it gives a new object a new id."""
        one = self._kind.__new__(self._kind)
        attributes = dict(zip(self.names, row, strict=False))
        for name, choices in self._enums.items():
            attributes[name] = choices(attributes[name])
        one.__dict__.update(attributes)
        return one


_labours = _Rows(Labour, labour_table)
_updates = _Rows(Update, update_table)
_parts: dict[str, _Rows[Any]] = {
    "subscribers": _Rows(Subscriber, subscriber_table, "labour_id"),
    "contractions": _Rows(Contraction, contraction_table, "labour_id"),
    "invites": _Rows(Invite, invite_table, "labour_id"),
}

_LOAD = f"""
    SELECT {", ".join(f"labour.{name}" for name in _labours.names)},
        ARRAY(SELECT {_parts["subscribers"].row} FROM subscriber WHERE labour_id = labour.id ORDER BY id),
        ARRAY(SELECT {_parts["contractions"].row} FROM contraction WHERE labour_id = labour.id ORDER BY started_at),
        ARRAY(SELECT {_parts["invites"].row} FROM invite WHERE labour_id = labour.id ORDER BY id)
    FROM labour
"""  # noqa: S608
_LOAD_BY_ID = f"{_LOAD} WHERE labour.id = $1"
_LOAD_BY_INVITE = f"{_LOAD} JOIN invite ON invite.labour_id = labour.id WHERE invite.token_hash = $1"
_LOAD_BY_SUBSCRIPTION = (
    f"{_LOAD} JOIN subscriber ON subscriber.labour_id = labour.id WHERE subscriber.id = $1 AND subscriber.user_id = $2"
)

# Of two concurrent writers, the later one updates no row, because the version is no longer the one that it has loaded.
_UPDATE = f"""
    UPDATE labour SET ({", ".join(_labours.names)}) = ROW ({", ".join(f"${n}" for n in range(1, len(_labours.names) + 1))})
    WHERE id = $1 AND version = ${len(_labours.names) + 1}
"""  # noqa: S608

_UNFINISHED = "SELECT id FROM labour WHERE mother_id = $1 AND phase <> 'complete'"
_UPDATE_BY_ID = f"SELECT {', '.join(_updates.names)} FROM labour_update WHERE id = $1 AND labour_id = $2"  # noqa: S608
_ADD_UPDATE = """
    INSERT INTO labour_update (id, labour_id, kind, text, posted_at)
    SELECT $1::uuid, $2::uuid, $3, $4, $5::timestamptz
    WHERE (SELECT count(*) FROM labour_update WHERE labour_id = $2::uuid) < $6
"""


class Labours:
    """The repository. Registers every labour with the unit of work, which saves it and collects its events at the end.

    It checks no permission: `labour.application.access` does.
    """

    def __init__(self, uow: UnitOfWork) -> None:
        self._uow = uow

    async def add(self, labour: Labour) -> None:
        if (unfinished := await self._uow.connection.fetchval(_UNFINISHED, labour.mother_id)) is not None:
            raise UnfinishedLabour(unfinished)
        self._uow.see(labour, _Changes(self._uow, labour).save)

    async def get(self, labour_id: UUID) -> Labour:
        labour = await self._load(_LOAD_BY_ID, labour_id)
        if labour is None:
            raise NoSuchLabour(labour_id)
        return labour

    async def of_invite(self, token: str) -> Labour | None:
        return await self._load(_LOAD_BY_INVITE, hash_token(token))

    async def of_subscription(self, subscriber_id: UUID, user_id: str) -> Labour | None:
        """The labour of a subscription; None if there is no such subscription, or if it belongs to another user."""
        return await self._load(_LOAD_BY_SUBSCRIPTION, subscriber_id, user_id)

    async def get_update(self, labour_id: UUID, update_id: UUID) -> Update | None:
        row = await self._uow.connection.fetchrow(_UPDATE_BY_ID, update_id, labour_id)
        return None if row is None else _updates.build(row)

    async def add_update(self, update: Update) -> None:
        """Raises `TooMany` at the limit. It bounds storage and is not exact: concurrent requests may exceed it by one each."""
        if await self._uow.connection.execute(_ADD_UPDATE, *_updates.values(update), UPDATE_LIMIT) != "INSERT 0 1":
            raise TooMany(update.labour_id, "updates", UPDATE_LIMIT, "Delete a status or a note that is out of date.")

    async def delete_update(self, update: Update) -> None:
        await self._uow.connection.execute(_updates.delete_all, [update.id])

    async def _load(self, statement: str, *arguments: object) -> Labour | None:
        row = await self._uow.connection.fetchrow(statement, *arguments)
        if row is None:
            return None
        labour, stored = _labours.build(row), dict[str, dict[UUID, tuple[Any, ...]]]()
        for (name, part), rows in zip(_parts.items(), list(row)[len(_labours.names) :], strict=True):
            labour.__dict__[name] = parts = [part.build(one) for one in rows]
            stored[name] = {one.id: part.values(one) for one in parts}
        self._uow.see(labour, _Changes(self._uow, labour, labour.version, stored).save)
        return labour


class _Changes:
    """Saves the parts of a labour that differ from what is stored. Every change of a labour or its parts raises its version."""

    def __init__(
        self,
        uow: UnitOfWork,
        labour: Labour,
        version: int | None = None,
        stored: dict[str, dict[UUID, tuple[Any, ...]]] | None = None,
    ) -> None:
        self._uow, self._labour, self._version, self._stored = uow, labour, version, stored or {}

    async def save(self) -> None:
        labour, connection = self._labour, self._uow.connection
        if labour.version == self._version:
            return
        if self._version is None:
            await connection.execute(_labours.insert, *_labours.values(labour))
        elif await connection.execute(_UPDATE, *_labours.values(labour), self._version) != "UPDATE 1":
            raise Stale
        for name, part in _parts.items():
            before = self._stored.get(name, {})
            now = {one.id: part.values(one) for one in getattr(labour, name)}
            if changed := [values for key, values in now.items() if before.get(key) != values]:
                await connection.execute(part.save_all, labour.id, *zip(*changed, strict=True))
            if gone := before.keys() - now.keys():
                await connection.execute(part.delete_all, list(gone))
            self._stored[name] = now
        self._version = labour.version
