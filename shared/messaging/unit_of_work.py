"""One business transaction: the change and its events are committed together, or neither is.

    async with units_of_work() as uow:
        labour = await Labours(uow).get(labour_id)
        labour.complete(now)

A clean exit commits and an exception rolls back. There is no public `commit()`: only the code that opened the unit of work ends
it, so code that receives one cannot commit half of it.
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
AFTER_COMMIT = FaultPoint("uow.after_commit_before_wakeup", "committed, the relay is not woken yet")


class UnitOfWork:
    """`source` names the service in its events. `committed` is called after each commit that wrote events."""

    def __init__(self, engine: AsyncEngine, *, source: str, committed: Callable[[], None]) -> None:
        self.session = AsyncSession(engine, expire_on_commit=False, autoflush=False)
        self._source, self._committed = source, committed
        self._after_commit: list[Callable[[], None]] = []
        self._seen: list[Aggregate] = []
        self._emitted: list[Recorded] = []

    def see(self, aggregate: Aggregate) -> None:
        """Register an aggregate whose events are collected at the end. Repositories call this for all they load or add."""
        if not any(aggregate is known for known in self._seen):
            self._seen.append(aggregate)

    def emit(self, event: DomainEvent, *, key: str, at: datetime) -> None:
        """Add an event of a row that is not an aggregate."""
        self._emitted.append(Recorded(event, key, at))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once after the commit, never after a rollback. A crash after the commit loses it: for wake-ups only."""
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
            await self.session.close()  # rolls back what is not committed

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
