"""The reaction to a batch of events: load the rosters and consents that it needs, decide in memory, write the result in bulk.

The number of statements does not depend on the size of the batch. The consumer has claimed the events in the same unit of work,
so claims and effects are committed together.
"""

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import get_args
from uuid import UUID

from msgspec.structs import replace
from structlog import get_logger

from contracts.events import Event
from messaging import telemetry
from messaging.consumer import Received
from messaging.errors import ReactionsFailed
from messaging.unit_of_work import UnitOfWork
from notification.delivery import consents
from notification.delivery.ledger import insert_pending, insert_waiting
from notification.domain.consent import Contact, Mode, contacts, decide
from notification.domain.notification import MOST_WAITING, Notification
from notification.domain.reactions import react
from notification.domain.roster import RosterChange
from notification.storage import Rosters

log = get_logger()
_ROSTER_CHANGES = frozenset(get_args(RosterChange))


async def react_to_batch(
    uow: UnitOfWork,
    events: Sequence[Received[Event]],
    *,
    wake_dispatcher: Callable[[], None],
    consent: Mode = Mode.ASSUMED,
    most_waiting: int = MOST_WAITING,
) -> Collection[UUID]:
    """Write the effects of the events, and return the ids of those that are early. Wakes the dispatcher after the commit if there
    is anything to send.

    Consents are read only if they are required. `most_waiting` is the number of announcements of one labour that may wait to be
    sent; any more are FAILED.

    Raises `ReactionsFailed` with every event that has no reaction, before anything is written.
    """
    in_order = sorted(events, key=_roster_changes_first)
    repository = Rosters(uow.connection)
    rosters = await repository.load({one.event.labour_id: _roster_version(one.event) for one in in_order})
    early, notifications, errors = set[UUID](), list[Notification](), dict[UUID, Exception]()
    known, required = list[Contact](), consent is Mode.REQUIRED
    for received in in_order:
        labour_id = received.event.labour_id
        try:
            reaction = react(received.id, received.event, rosters[labour_id], received.envelope.sequence)
        except Exception as error:
            errors[received.id] = error
            continue
        rosters[labour_id] = reaction.roster
        traceparent = telemetry.continuing(received.envelope.traceparent)
        notifications += _traced(reaction.notifications, traceparent) if traceparent else reaction.notifications
        if reaction.early:
            early.add(received.id)
        elif required:
            known += contacts(received.id, received.event, reaction.notifications, traceparent)
    if errors:
        raise ReactionsFailed(errors)
    await repository.save(rosters.values())
    if known:
        found = await consents.load(uow.connection, {contact.phone for contact in known})
        notifications, waiting = decide(notifications, known, found)
        if waiting:
            await insert_waiting(uow.connection, waiting)
    if notifications:
        if refused := await insert_pending(uow, notifications, most_waiting=most_waiting, consent_required=required):
            log.warning("announcements refused: too many of their labour are waiting", count=refused)
        uow.after_commit(wake_dispatcher)
    return early


def _traced(notifications: Iterable[Notification], traceparent: str) -> list[Notification]:
    """The messages with the trace context of their event."""
    return [replace(one, traceparent=traceparent) for one in notifications]


def _roster_changes_first(received: Received[Event]) -> tuple[int, bool]:
    """A sort key: by roster version, and a roster change before the events that name its version, so that no event is early if
    its batch is complete.
    """
    return _roster_version(received.event), type(received.event) not in _ROSTER_CHANGES


def _roster_version(event: Event) -> int:
    version: int = getattr(event, "roster_version", 0)
    return version
