"""Mistakes of a projection."""

from collections.abc import Collection, Sequence
from uuid import UUID

from contracts.events import Event, NotificationDelivered, NotificationFailed, NotificationSent
from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import projections as scenarios
from labour.application import told
from messaging.consumer import Received
from messaging.unit_of_work import UnitOfWork

WENT_BACK = "went back: the text is delivered, and is shown as sent"


@exhibit("the last status wins", scenarios.a_delivery_overtakes_its_sending, told.react, 9, WENT_BACK)
async def the_last_status_wins(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
    """Each event about a text overwrote the status that the event before had set. It looks right because every event is
    applied once, and statuses follow each other. But events arrive in any order, and the event that arrives last may
    not be the one that happened last. Our statuses have ranks, and a lower-ranked status never overwrites a
    higher-ranked one.
    """
    for received in events:
        assert isinstance(received.event, NotificationSent | NotificationDelivered | NotificationFailed)
        row = told.to_row(received.event)
        columns, values = ", ".join(row), ", ".join(f"${number}" for number in range(1, len(row) + 1))
        upsert = "ON CONFLICT (notification_id) DO UPDATE SET status = excluded.status"
        await uow.connection.execute(f"INSERT INTO told ({columns}) VALUES ({values}) {upsert}", *row.values())
    return ()
