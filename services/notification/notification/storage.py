"""Tables, and the repository of rosters.

As in the Labour service, all tables of the service are declared here. `delivery/ledger.py` has the statements that move a row
of `notification_table` from state to state.
"""

from collections.abc import Collection, Iterable
from dataclasses import fields
from uuid import UUID

from sqlalchemy import (
    Column,
    DateTime,
    ForeignKey,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    TextClause,
    UniqueConstraint,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects import postgresql
from sqlalchemy.ext.asyncio import AsyncSession

from messaging.outbox import outbox
from notification.domain.roster import Member, Roster

metadata = MetaData()
outbox.to_metadata(metadata)

roster_table = Table(
    "roster",
    metadata,
    Column("labour_id", Uuid, primary_key=True),
    Column("version", Integer, nullable=False),
)

roster_member_table = Table(
    "roster_member",
    metadata,
    Column("labour_id", Uuid, ForeignKey("roster.labour_id"), primary_key=True),
    Column("person_id", Uuid, primary_key=True),
    Column("name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("added_version", Integer, nullable=False),
    Column("removed_version", Integer),
)

notification_table = Table(
    "notification",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("event_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("labour_id", Uuid, nullable=False, index=True),
    Column("person_id", Uuid, nullable=False),
    Column("person_name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("segments", SmallInteger, nullable=False),
    Column("state", Text, nullable=False, server_default="PENDING"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("lease_until", DateTime(timezone=True)),
    Column("sid", Text),
    Column("failure", Text),
    Column("failure_code", Integer),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("sending_at", DateTime(timezone=True)),
    Column("in_doubt_at", DateTime(timezone=True)),
    Column("sent_at", DateTime(timezone=True)),
    Column("delivered_at", DateTime(timezone=True)),
    UniqueConstraint("event_id", "person_id", "channel", name="notification_once_per_person"),
)

suppression_table = Table(
    "suppression",
    metadata,
    Column("phone", Text, primary_key=True),
    Column("since", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)

# Sorted, here and in the lock below, so that two batches with the same labours wait for each other and never deadlock.
_ENSURE_ROSTERS = text("""
    INSERT INTO roster (labour_id, version)
    SELECT labour_id, 0 FROM unnest(CAST(:labour_ids AS uuid[])) AS wanted (labour_id) ORDER BY labour_id
    ON CONFLICT (labour_id) DO NOTHING
""")

# A statement of its own: under READ COMMITTED it sees what the previous holder of the lock committed.
_LOCK_ROSTERS = text("""
    SELECT labour_id, version FROM roster WHERE labour_id = ANY(CAST(:labour_ids AS uuid[])) ORDER BY labour_id FOR UPDATE
""")

_LOAD_MEMBERS = text("""
    SELECT labour_id, person_id, name, phone, added_version, removed_version FROM roster_member
    WHERE labour_id = ANY(CAST(:labour_ids AS uuid[])) ORDER BY labour_id, added_version
""")

_SAVE_VERSIONS = text("""
    UPDATE roster SET version = changed.version
    FROM unnest(CAST(:labour_ids AS uuid[]), CAST(:versions AS integer[])) AS changed (labour_id, version)
    WHERE roster.labour_id = changed.labour_id
""")


def bulk_insert(table: Table, columns: Collection[str], conflict: str) -> TextClause:
    """One statement that inserts any number of rows. The parameter of each column is the list of its values."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    values = ", ".join(f"CAST(:{name} AS {table.c[name].type.compile(dialect)}[])" for name in columns)
    into = f"{table.name} ({', '.join(columns)})"
    return text(f"INSERT INTO {into} SELECT * FROM unnest({values}) ON CONFLICT {conflict}")  # noqa: S608


_MEMBER = tuple(field.name for field in fields(Member))
_SAVE_MEMBERS = bulk_insert(
    roster_member_table,
    ("labour_id", *_MEMBER),
    "(labour_id, person_id) DO UPDATE SET removed_version = excluded.removed_version",
)


class Rosters:
    """The rosters that a batch of events needs, locked from `load` until the end of the transaction.

    It remembers what it loaded, so `save` writes only the rosters and members that changed.
    """

    def __init__(self, session: AsyncSession) -> None:
        self._session = session
        self._loaded = dict[UUID, Roster]()

    async def load(self, labour_ids: Collection[UUID]) -> dict[UUID, Roster]:
        """A roster for every labour: an empty one, at version 0, for a labour that has none yet."""
        wanted = {"labour_ids": list(labour_ids)}
        await self._session.execute(_ENSURE_ROSTERS, wanted)
        versions = {row.labour_id: row.version for row in await self._session.execute(_LOCK_ROSTERS, wanted)}
        members: dict[UUID, list[Member]] = {labour_id: [] for labour_id in versions}
        for labour_id, *member in await self._session.execute(_LOAD_MEMBERS, wanted):
            members[labour_id].append(Member(*member))
        self._loaded = {one: Roster(one, version, tuple(members[one])) for one, version in versions.items()}
        return dict(self._loaded)

    async def save(self, rosters: Iterable[Roster]) -> None:
        changed = [roster for roster in rosters if roster.version != self._loaded[roster.labour_id].version]
        if not changed:
            return
        ids, versions = [one.labour_id for one in changed], [one.version for one in changed]
        await self._session.execute(_SAVE_VERSIONS, {"labour_ids": ids, "versions": versions})
        rows = [
            (roster.labour_id, member)
            for roster in changed
            for member in roster.members
            if member not in self._loaded[roster.labour_id].members
        ]
        columns = {name: [getattr(member, name) for _, member in rows] for name in _MEMBER}
        await self._session.execute(_SAVE_MEMBERS, {"labour_id": [labour_id for labour_id, _ in rows], **columns})
