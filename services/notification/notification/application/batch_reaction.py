"""The reaction to a batch of events: load the rosters that it needs, decide in memory, write the result in bulk.

The number of statements does not depend on the size of the batch. The consumer has claimed the events in the same unit of work,
so claims and effects are committed together.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from contracts.events import Event
from messaging.consumer import Received
from messaging.errors import ReactionsFailed
from messaging.unit_of_work import UnitOfWork
from notification.delivery.ledger import insert_pending
from notification.domain.notification import Notification
from notification.domain.reactions import react
from notification.domain.roster import RosterChange
from notification.storage import Rosters


async def react_to_batch(
    uow: UnitOfWork, events: Sequence[Received[Event]], *, wake_dispatcher: Callable[[], None]
) -> Collection[UUID]:
    """Returns the ids of the events that are early. Wakes the dispatcher after the commit if there is anything to send.

    Raises `ReactionsFailed` with every event that has no reaction, before anything is written.
    """
    in_order = sorted(events, key=_roster_changes_first)
    repository = Rosters(uow.connection)
    rosters = await repository.load({one.event.labour_id: _roster_version(one.event) for one in in_order})
    early, notifications, errors = set[UUID](), list[Notification](), dict[UUID, Exception]()
    for received in in_order:
        labour_id = received.event.labour_id
        try:
            reaction = react(received.id, received.event, rosters[labour_id], received.envelope.sequence)
        except Exception as error:
            errors[received.id] = error
            continue
        rosters[labour_id] = reaction.roster
        notifications += reaction.notifications
        if reaction.early:
            early.add(received.id)
    if errors:
        raise ReactionsFailed(errors)
    await repository.save(rosters.values())
    if notifications:
        await insert_pending(uow.connection, notifications)
        uow.after_commit(wake_dispatcher)
    return early


def _roster_changes_first(received: Received[Event]) -> tuple[int, bool]:
    """By roster version, and a change before the events made under it, so that no event is early if its batch is complete."""
    return _roster_version(received.event), not isinstance(received.event, RosterChange)


def _roster_version(event: Event) -> int:
    version: int = getattr(event, "roster_version", 0)
    return version
