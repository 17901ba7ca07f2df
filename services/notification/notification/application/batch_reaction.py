"""The reaction to a batch of events: load the rosters that it needs, decide in memory, write the result in bulk.

The number of statements does not depend on the size of the batch. The consumer has claimed the events in the same unit of work,
so claims and effects are committed together.
"""

from collections.abc import Callable, Collection, Sequence
from uuid import UUID

from contracts.events import Event, SubscriberAdded, SubscriberRemoved
from messaging.consumer import Received
from messaging.unit_of_work import UnitOfWork
from notification.delivery.ledger import insert_pending
from notification.domain.notification import Notification
from notification.domain.reactions import react
from notification.storage import Rosters


async def react_to_batch(
    uow: UnitOfWork, events: Sequence[Received[Event]], *, wake_dispatcher: Callable[[], None]
) -> Collection[UUID]:
    """Returns the ids of the events that are early. Wakes the dispatcher after the commit if there is anything to send."""
    repository = Rosters(uow.session)
    rosters = await repository.load({received.event.labour_id for received in events})
    early, notifications = set[UUID](), list[Notification]()
    for received in sorted(events, key=_roster_changes_first):
        labour_id = received.event.labour_id
        reaction = react(received.id, received.event, rosters[labour_id])
        rosters[labour_id] = reaction.roster
        notifications += reaction.notifications
        if reaction.early:
            early.add(received.id)
    await repository.save(rosters.values())
    if notifications:
        await insert_pending(uow.session, notifications)
        uow.after_commit(wake_dispatcher)
    return early


def _roster_changes_first(received: Received[Event]) -> tuple[int, bool]:
    """By roster version, and a change before the events made under it, so that no event is early if its batch is complete."""
    event = received.event
    return getattr(event, "roster_version", 0), not isinstance(event, SubscriberAdded | SubscriberRemoved)
