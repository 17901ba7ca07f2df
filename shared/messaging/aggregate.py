"""An aggregate records the events of its changes; the unit of work commits the change and the events together."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Protocol
from uuid import UUID

from messaging.clock import new_id


class DomainEvent(Protocol):
    """Any frozen struct with a name and a version. `contracts` holds the real ones."""

    @property
    def type(self) -> str: ...
    @property
    def version(self) -> int: ...


@dataclass(frozen=True, slots=True)
class Recorded:
    """An event with its identity. The id is generated here, once, and is the deduplication key from then on.

    Events with the same `key` are published in the order they were recorded. `sequence` counts them from 1, without gaps. For
    an aggregate it is the version after the change; for events of other rows it is None until `messaging.sequences` numbers them.
    `traceparent` is the trace context stored with the row that the event is about; without it, the event is in the current trace.
    """

    event: DomainEvent
    key: str
    occurred_at: datetime
    sequence: int | None = None
    id: UUID = field(default_factory=new_id)
    traceparent: str | None = None


class Aggregate:
    """Each recorded event increments `version`, and nothing else does: it is the sequence of the event, and the database can
    refuse the later of two concurrent writers.

    Recorded events are kept beside the mapped fields, because a loaded aggregate never passes through `__init__`.
    """

    version: int

    @property
    def event_key(self) -> str:
        raise NotImplementedError

    def record(self, event: DomainEvent, at: datetime) -> None:
        self.version += 1
        self.__dict__.setdefault("_recorded", []).append(Recorded(event, self.event_key, at, self.version))

    def collect(self) -> list[Recorded]:
        """Return the recorded events and clear them, so that no event is collected twice."""
        recorded: list[Recorded] = self.__dict__.pop("_recorded", [])
        return recorded
