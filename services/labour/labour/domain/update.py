"""Updates: what the mother posts about her labour."""

from datetime import datetime, timedelta
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7

UPDATE_LIMIT = 1000  # of a labour
ANNOUNCEMENT_LIMIT = 100  # of a labour; each may become a message to every subscriber

SHORTEST_COOLDOWN = timedelta(seconds=10)
LONGEST_COOLDOWN = timedelta(minutes=10)


def cooldown_after(announcements: int) -> timedelta:
    """How long the next announcement has to wait: ten seconds after the first one, and twice as long after each further one."""
    doublings = min(max(announcements - 1, 0), 10)  # more doublings only exceed the longest cooldown
    return min(SHORTEST_COOLDOWN * (1 << doublings), LONGEST_COOLDOWN)


class UpdateKind(StrEnum):
    ANNOUNCEMENT = "announcement"  # sent to every approved subscriber; cannot be deleted
    STATUS = "status"  # shown to subscribers who read the labour; not sent
    PRIVATE = "private"  # shown to the mother only


class Update:
    """What the mother posted. It is stored outside the aggregate: there may be many updates, and no rule needs all of them."""

    def __init__(self, *, labour_id: UUID, kind: UpdateKind, text: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.labour_id, self.kind, self.text, self.posted_at = labour_id, kind, text, at
