"""An aggregate records what happened to it; the unit of work collects the records and commits both together."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from uuid_utils.compat import uuid7


class DomainEvent(Protocol):
    """Any frozen struct with a name and a version. `contracts` holds the real ones."""

    @property
    def type(self) -> str: ...
    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its identity. The id is made here, once, and is the deduplication key everywhere after.

    Events with the same `key` are published in the order they were recorded. `aggregate_version` is what the change made of
    its aggregate; events of rows that are no aggregates have none.
    """

    event: DomainEvent
    key: str
    occurred_at: datetime
    aggregate_version: int | None = None
    id: UUID = field(default_factory=uuid7)


class Aggregate:
    """Everything that happens is a new version, so of two writers of the same version the later one can be refused.

    What is recorded is kept beside the mapped fields: rows loaded by the mapper never pass through `__init__`.
    """

    version: int

    @property
    def event_key(self) -> str:
        raise NotImplementedError

    def record(self, event: DomainEvent, at: datetime) -> None:
        self.version += 1
        self.__dict__.setdefault("_recorded", []).append(Recorded(event, self.event_key, at, self.version))

    def collect(self) -> list[Recorded]:
        """Hands over what was recorded and forgets it, so that nothing is ever collected twice."""
        recorded: list[Recorded] = self.__dict__.pop("_recorded", [])
        return recorded
