"""What the designs of `fern quest deltas` have in common: the events, the worker that handles them, and their description.

The projection: for each labour, the number of its contractions and the sum of their seconds.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import ClassVar
from uuid import UUID

import asyncpg

from messaging.consumer import Verdict

RETENTION, TTL, FOR_EVER = "the retention", "the TTL", "for ever"  # how long a design remembers what it has handled

# The target of every design that keeps totals
TOTAL = "CREATE TABLE total (labour_id uuid PRIMARY KEY, count integer NOT NULL, seconds integer NOT NULL)"
ADD = """
    INSERT INTO total (labour_id, count, seconds) VALUES ($1, $2, $3) ON CONFLICT (labour_id)
    DO UPDATE SET count = total.count + excluded.count, seconds = total.seconds + excluded.seconds
"""


@dataclass(frozen=True, slots=True)
class Event:
    """A contraction, or a correction of an earlier one: then `count` is 0, and `seconds` are the difference.

    `sequence` is contiguous for each labour; `position` increases over all events of the source.
    """

    id: UUID
    labour_id: UUID
    sequence: int
    position: int
    time: datetime
    contraction_id: UUID
    count: int
    seconds: int

    @property
    def delta(self) -> tuple[UUID, int, int]:
        return self.labour_id, self.count, self.seconds


async def _go_on() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Worker:
    """`aside` is another connection, in autocommit: a store that does not take part in the transactions of `connection`.

    A design calls `checked` when it knows whether the event is new and has written nothing, and `between` after the first of
    its two writes, the record of the event and the effect. There the misfortunes happen: workers meet, or one crashes.
    """

    connection: asyncpg.Connection
    aside: asyncpg.Connection
    checked: Callable[[], Awaitable[None]] = _go_on
    between: Callable[[], Awaitable[None]] = _go_on


class Semantics(StrEnum):
    """The semantics of the effect, as long as the design remembers what it has handled."""

    AT_MOST_ONCE = "at most once"  # may lose
    AT_LEAST_ONCE = "at least once"  # may duplicate
    EFFECTIVELY_ONCE = "effectively once"


class Design(ABC):
    """`breaks` says why, or under which condition the design is right. `tables` are created besides `total`; `forget` is what
    the retention or the TTL does; `totals` reads the projection.
    """

    name: ClassVar[str]
    semantics: ClassVar[Semantics]
    remembers: ClassVar[str]
    breaks: ClassVar[str]
    tables: ClassVar[str] = ""
    forget: ClassVar[str] = ""
    totals: ClassVar[str] = "SELECT labour_id, count, seconds FROM total"

    @abstractmethod
    async def handle(self, worker: Worker, event: Event) -> Verdict: ...
