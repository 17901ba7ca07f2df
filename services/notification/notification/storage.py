"""The tables of the service, and the repository of rosters.

As in the Labour service, all tables of the service are declared here. `delivery/ledger.py` has the statements that move a row
of `notification_table` from state to state.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from uuid import UUID

import asyncpg
from msgspec.structs import astuple
from sqlalchemy import (
    BigInteger,
    Boolean,
    Column,
    Date,
    DateTime,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
)
from sqlalchemy.dialects import postgresql

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
    Column("labour_id", Uuid, nullable=False),
    Column("person_id", Uuid, nullable=False),
    Column("person_name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("segments", SmallInteger, nullable=False),
    Column("sequence", BigInteger),
    Column("traceparent", Text),
    Column("consent_required", Boolean, nullable=False, server_default="false"),
    Column("state", Text, nullable=False, server_default="PENDING"),
    Column("priority", SmallInteger, nullable=False, server_default="2"),
    Column("turn", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("lease_until", DateTime(timezone=True)),
    Column("sid", Text),
    Column("failure", Text),
    Column("failure_code", Integer),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("released_at", DateTime(timezone=True)),
    Column("sending_at", DateTime(timezone=True)),
    Column("in_doubt_at", DateTime(timezone=True)),
    Column("sent_at", DateTime(timezone=True)),
    Column("delivered_at", DateTime(timezone=True)),
    UniqueConstraint("event_id", "person_id", "channel", name="notification_once_per_person"),
    Index("notification_order", "labour_id", "person_id", "sequence"),
)

# `agreed_at` is the first YES, and `answered_at` the last answer of any kind. STOP may come from a number that was never asked.
consent_table = Table(
    "consent",
    metadata,
    Column("phone", Text, primary_key=True),
    Column("state", Text, nullable=False),
    Column("asked_at", DateTime(timezone=True)),
    Column("agreed_at", DateTime(timezone=True)),
    Column("answered_at", DateTime(timezone=True)),
)

# A token bucket as one time: the bucket is empty at `free_at`, and full a second later, or as much later as one call takes.
sender_rate_table = Table(
    "sender_rate",
    metadata,
    Column("sender", Text, primary_key=True),
    Column("free_at", DateTime(timezone=True), nullable=False),
)

number_day_table = Table(
    "number_day",
    metadata,
    Column("day", Date, primary_key=True),
    Column("phone", Text, primary_key=True),
    Column("segments", Integer, nullable=False),
)

# The ids are sorted, here and in the lock, so that two batches with the same labours wait for each other and never deadlock.
_ENSURE_ROSTERS = """
    INSERT INTO roster (labour_id, version)
    SELECT labour_id, 0 FROM unnest($1::uuid[]) AS wanted (labour_id) ORDER BY labour_id
    ON CONFLICT (labour_id) DO NOTHING
"""

_LOCK_ROSTERS = "SELECT 1 FROM roster WHERE labour_id = ANY($1::uuid[]) ORDER BY labour_id FOR UPDATE"

# Not part of the statement that locks: under READ COMMITTED a later statement sees what the previous holder committed.
_LOAD_ROSTERS = """
    SELECT labour_id, version, person_id, name, phone, added_version, removed_version
    FROM roster LEFT JOIN roster_member USING (labour_id)
    WHERE labour_id = ANY($1::uuid[]) ORDER BY labour_id, added_version
"""

_SAVE_VERSIONS = """
    UPDATE roster SET version = changed.version FROM unnest($1::uuid[], $2::integer[]) AS changed (labour_id, version)
    WHERE roster.labour_id = changed.labour_id
"""

_MEMBER = ("labour_id", *Member.__struct_fields__)
_SAVE_MEMBERS = f"""
    INSERT INTO roster_member ({", ".join(_MEMBER)})
    SELECT * FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::text[], $5::integer[], $6::integer[])
    ON CONFLICT (labour_id, person_id) DO UPDATE SET removed_version = excluded.removed_version
"""  # noqa: S608


def column_types(table: Table, names: Iterable[str]) -> str:
    """As a statement that reads rows from JSON declares them: `id UUID, attempt INTEGER, …`."""
    dialect = postgresql.dialect()  # type: ignore[no-untyped-call]
    return ", ".join(f"{name} {table.c[name].type.compile(dialect)}" for name in names)


class Rosters:
    """The rosters that a batch of events needs. It remembers what it loaded, so `save` writes only what changed."""

    def __init__(self, connection: asyncpg.Connection) -> None:
        self._connection = connection
        self._loaded = dict[UUID, Roster]()

    async def load(self, versions: Mapping[UUID, int]) -> dict[UUID, Roster]:
        """A roster for every labour: an empty one, at version 0, for a labour that has none yet.

        `versions` has the highest version that the events of each labour name. A roster that has reached it is not changed by
        them, and is only read. The other rosters are locked until the end of the transaction, and read again, so that they have
        the changes that another consumer has committed meanwhile.
        """
        self._loaded = await self._read(versions)
        if behind := [one.labour_id for one in self._loaded.values() if one.version < versions[one.labour_id]]:
            await self._connection.execute(_ENSURE_ROSTERS, behind)
            await self._connection.execute(_LOCK_ROSTERS, behind)
            self._loaded |= await self._read(behind)
        return dict(self._loaded)

    async def _read(self, labour_ids: Iterable[UUID]) -> dict[UUID, Roster]:
        wanted = list(labour_ids)
        versions, members = dict.fromkeys(wanted, 0), defaultdict[UUID, list[Member]](list)
        for labour_id, version, person_id, *member in await self._connection.fetch(_LOAD_ROSTERS, wanted):
            versions[labour_id] = version
            if person_id is not None:
                members[labour_id].append(Member(person_id, *member))
        return {one: Roster(one, version, tuple(members[one])) for one, version in versions.items()}

    async def save(self, rosters: Iterable[Roster]) -> None:
        changed = [roster for roster in rosters if roster.version != self._loaded[roster.labour_id].version]
        if not changed:
            return
        ids, versions = [one.labour_id for one in changed], [one.version for one in changed]
        await self._connection.execute(_SAVE_VERSIONS, ids, versions)
        rows = [
            (roster.labour_id, *astuple(member))
            for roster in changed
            for member in roster.members
            if member not in self._loaded[roster.labour_id].members
        ]
        if rows:
            await self._connection.execute(_SAVE_MEMBERS, *zip(*rows, strict=True))
