"""Loads the rosters that a batch needs, lets the reactions decide in memory, and writes all they decided in bulk."""

from collections.abc import Callable, Collection, Iterable, Sequence
from uuid import UUID

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncSession

from contracts.events import Event, SubscriberAdded, SubscriberRemoved
from messaging.consumer import React, Received
from messaging.unit_of_work import UnitOfWork
from notification.delivery.ledger import insert_pending
from notification.domain.notification import Notification
from notification.domain.reactions import Member, Roster, react

# Sorted, here and in the lock below, so that two batches with the same labours wait for each other and never deadlock.
_ENSURE_ROSTERS = text("""
    INSERT INTO roster (labour_id, version)
    SELECT labour_id, 0 FROM unnest(CAST(:labour_ids AS uuid[])) AS wanted (labour_id) ORDER BY labour_id
    ON CONFLICT (labour_id) DO NOTHING
""")

# A second statement: after the lock it sees what the previous holder committed.
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

_SAVE_MEMBERS = text("""
    INSERT INTO roster_member (labour_id, person_id, name, phone, added_version, removed_version)
    SELECT * FROM unnest(
        CAST(:labour_ids AS uuid[]), CAST(:person_ids AS uuid[]), CAST(:names AS text[]), CAST(:phones AS text[]),
        CAST(:added AS integer[]), CAST(:removed AS integer[]))
    ON CONFLICT (labour_id, person_id) DO UPDATE SET removed_version = excluded.removed_version
""")


def reaction(wake_dispatcher: Callable[[], None]) -> React[Event]:
    """The reaction of the Notification service, for its consumer."""

    async def react_to(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        before = await _load(uow.session, {received.event.labour_id for received in events})
        rosters = dict(before)
        early, notifications = set[UUID](), list[Notification]()
        for received in sorted(events, key=_by_roster):
            labour_id = received.event.labour_id
            decision = react(received.id, received.event, rosters[labour_id])
            rosters[labour_id] = decision.roster
            notifications += decision.notifications
            if decision.early:
                early.add(received.id)
        await _save(uow.session, before, rosters.values())
        if notifications:
            await insert_pending(uow.session, notifications)
            uow.after_commit(wake_dispatcher)
        return early

    return react_to


def _by_roster(received: Received[Event]) -> tuple[int, bool]:
    """Changes of the roster before what is told under it, so that nothing in a batch is early for want of the rest."""
    event = received.event
    return getattr(event, "roster_version", 0), not isinstance(event, SubscriberAdded | SubscriberRemoved)


async def _load(session: AsyncSession, labour_ids: Collection[UUID]) -> dict[UUID, Roster]:
    wanted = {"labour_ids": list(labour_ids)}
    await session.execute(_ENSURE_ROSTERS, wanted)
    versions = {row.labour_id: row.version for row in await session.execute(_LOCK_ROSTERS, wanted)}
    members: dict[UUID, list[Member]] = {labour_id: [] for labour_id in versions}
    for labour_id, *member in await session.execute(_LOAD_MEMBERS, wanted):
        members[labour_id].append(Member(*member))
    return {labour_id: Roster(labour_id, versions[labour_id], tuple(members[labour_id])) for labour_id in versions}


async def _save(session: AsyncSession, before: dict[UUID, Roster], after: Iterable[Roster]) -> None:
    changed = [roster for roster in after if roster.version != before[roster.labour_id].version]
    if not changed:
        return
    await session.execute(
        _SAVE_VERSIONS,
        {"labour_ids": [roster.labour_id for roster in changed], "versions": [roster.version for roster in changed]},
    )
    members = [
        (roster.labour_id, member)
        for roster in changed
        for member in roster.members
        if member not in before[roster.labour_id].members
    ]
    await session.execute(
        _SAVE_MEMBERS,
        {
            "labour_ids": [labour_id for labour_id, _ in members],
            "person_ids": [member.person_id for _, member in members],
            "names": [member.name for _, member in members],
            "phones": [member.phone for _, member in members],
            "added": [member.added_version for _, member in members],
            "removed": [member.removed_version for _, member in members],
        },
    )
