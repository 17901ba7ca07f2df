"""From an older version of an event to the next one. Consumers get the newest version only, whichever was published.

An upcaster is a pure function of the event: what the older version did not say is None, and is never guessed or looked up. Old
versions keep arriving from outboxes, replays and dead letters, so an upcaster stays for as long as its struct.
"""

from collections.abc import Callable
from typing import Any

from contracts.events import Event, LabourCompleted, LabourCompletedV2


def labour_completed_2(event: LabourCompleted) -> LabourCompletedV2:
    return LabourCompletedV2(
        labour_id=event.labour_id,
        roster_version=event.roster_version,
        mother_name=event.mother_name,
        completed_at=event.completed_at,
        baby_name=None,
    )


# By the struct of exactly that version: each leads to the next version of the same event.
UPCASTERS: dict[type[Event], Callable[[Any], Event]] = {LabourCompleted: labour_completed_2}


def newest(event: Event) -> Event:
    """The event in its newest version."""
    while (upcast := UPCASTERS.get(type(event))) is not None:
        event = upcast(event)
    return event
