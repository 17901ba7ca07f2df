"""One business transaction: what changed and what happened are committed together, or neither is.

    async with units_of_work() as uow:
        labour = await Labours(uow).get(labour_id)
        labour.complete(now)

A clean exit commits, an exception rolls back, and there is no public `commit()`: whoever opens the unit of work ends it, so
code that is handed one has no way to commit half of it.
"""

from collections.abc import Callable
from datetime import datetime
from types import TracebackType
from typing import Self

from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from messaging import outbox
from messaging.aggregate import Aggregate, DomainEvent, Recorded
from messaging.faults import FaultPoint

AFTER_WRITE = FaultPoint(
    "uow.after_write_before_events", "the change is written, its events are not, nothing is committed"
)
BEFORE_COMMIT = FaultPoint("uow.before_commit", "change and events are written, nothing is committed")
AFTER_COMMIT = FaultPoint(
    "uow.after_commit_before_wakeup", "committed, nobody was told that there is something to publish"
)


class UnitOfWork:
    """`source` names the service in its events. `committed` is called after a commit that wrote events."""

    def __init__(self, engine: AsyncEngine, *, source: str, committed: Callable[[], None]) -> None:
        self.session = AsyncSession(engine, expire_on_commit=False, autoflush=False)
        self._source, self._committed = source, committed
        self._after_commit: list[Callable[[], None]] = []
        self._seen: list[Aggregate] = []
        self._emitted: list[Recorded] = []

    def see(self, aggregate: Aggregate) -> None:
        """Repositories call this for everything they load or add: its events are collected at the end."""
        if not any(aggregate is known for known in self._seen):
            self._seen.append(aggregate)

    def emit(self, event: DomainEvent, *, key: str, at: datetime) -> None:
        """For events of rows that are no aggregates."""
        self._emitted.append(Recorded(event, key, at))

    def after_commit(self, action: Callable[[], None]) -> None:
        """For hints: runs once, after the commit, and never after a rollback. A crash in between loses it."""
        if action not in self._after_commit:
            self._after_commit.append(action)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            if error is None:
                await self._commit()
        finally:
            await self.session.close()  # rolls back whatever is not committed

    async def _commit(self) -> None:
        await self.session.flush()
        await AFTER_WRITE()
        recorded = [event for aggregate in self._seen for event in aggregate.collect()] + self._emitted
        if recorded:
            await outbox.add(self.session, self._source, recorded)
            self.after_commit(self._committed)
        await BEFORE_COMMIT()
        await self.session.commit()
        await AFTER_COMMIT()
        for action in self._after_commit:
            action()


UnitsOfWork = Callable[[], UnitOfWork]
