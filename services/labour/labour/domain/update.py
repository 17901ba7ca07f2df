"""Updates: what the mother posts about her labour."""

from datetime import datetime
from enum import StrEnum
from uuid import UUID

from uuid_utils.compat import uuid7


class UpdateKind(StrEnum):
    ANNOUNCEMENT = "announcement"  # sent to every approved subscriber; cannot be deleted
    STATUS = "status"  # shown to subscribers who read the labour; sent to no one
    PRIVATE = "private"  # shown to the mother only


class Update:
    """A row of its own beside the labour: there may be many, and no rule needs all of them."""

    def __init__(self, *, labour_id: UUID, kind: UpdateKind, text: str, at: datetime) -> None:
        self.id: UUID = uuid7()
        self.labour_id, self.kind, self.text, self.posted_at = labour_id, kind, text, at
