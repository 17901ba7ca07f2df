"""What the services know of the events that the console follows, as their operators' routes return it."""

from collections.abc import Mapping, Sequence, Set
from datetime import datetime
from typing import Any

import msgspec

Row = Mapping[str, Any]
Claims = Mapping[tuple[str, str], Row]  # by consumer and event
Dead = Set[tuple[str, str]]


def milliseconds(at: str) -> float:
    return datetime.fromisoformat(at).timestamp() * 1000


class Records(msgspec.Struct, frozen=True):
    """What the services know. `repeats` has the time of each duplicate, by consumer and event, as far as it was observed."""

    events: Sequence[Row]  # rows of the Labour service's outbox
    statuses: Sequence[Row]  # rows of the Notification service's outbox
    claims: Sequence[Row]  # of both services
    messages: Sequence[Row]  # rows of the ledger
    texts: Sequence[Row]  # of the sandbox
    phones: Mapping[str, str]  # by person
    repeats: Mapping[tuple[str, str], Sequence[float]] = {}
    dead: Dead = frozenset()  # the consumer and the event of each dead letter
