"""One business transaction: the change and its events are committed together, or neither is.

    async with units_of_work() as uow:
        labour = await Labours(uow).get(labour_id)
        labour.complete(now)

A clean exit commits and an exception rolls back. There is no public `commit()`: only the code that opened the unit of work ends
it, so code that receives one cannot commit half of it.
"""

from collections.abc import Awaitable, Callable
from contextlib import AsyncExitStack, suppress
from datetime import datetime
from types import TracebackType
from typing import Self

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine, AsyncSession

from messaging import outbox
from messaging.aggregate import Aggregate, DomainEvent, Recorded
from messaging.database import lease
from messaging.faults import FaultPoint

AFTER_WRITE = FaultPoint(
    "uow.after_write_before_events", "the change is written, its events are not, nothing is committed"
)
BEFORE_COMMIT = FaultPoint("uow.before_commit", "change and events are written, nothing is committed")
AFTER_COMMIT = FaultPoint("uow.after_commit_before_wakeup", "committed, the relay is not woken yet")

Save = Callable[[], Awaitable[None]]


class UnitOfWork:
    """`source` names the service in its events. `committed` is called after each commit that wrote events.

    `connection` is open and in a transaction until the unit of work ends.
    """

    connection: asyncpg.Connection

    def __init__(self, engine: AsyncEngine, *, source: str, committed: Callable[[], None]) -> None:
        self._engine, self._source, self._committed = engine, source, committed
        self._after_commit: list[Callable[[], None]] = []
        self._seen: list[tuple[Aggregate, Save | None]] = []
        self._emitted: list[Recorded] = []
        self._open = AsyncExitStack()
        self._session: AsyncSession | None = None

    @property
    def session(self) -> AsyncSession:
        """For statements that are not on `connection` yet. A savepoint of the same transaction."""
        if self._session is None:
            self._session = AsyncSession(self._pooled, expire_on_commit=False, autoflush=False)
        return self._session

    def see(self, aggregate: Aggregate, save: Save | None = None) -> None:
        """Register an aggregate whose events are collected at the end. Repositories call this for all they load or add.

        `save` writes what has changed since it last did.
        """
        if not any(aggregate is known for known, _ in self._seen):
            self._seen.append((aggregate, save))

    def emit(self, event: DomainEvent, *, key: str, at: datetime) -> None:
        """Add an event of a row that is not an aggregate."""
        self._emitted.append(Recorded(event, key, at))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once after the commit, never after a rollback. A crash after the commit loses it: for wake-ups only."""
        if action not in self._after_commit:
            self._after_commit.append(action)

    async def flush(self) -> None:
        """Write the changes of all aggregates seen. Raises `Stale` if one was changed meanwhile."""
        if self._session is not None:
            await self._session.flush()
        for _, save in self._seen:
            if save is not None:
                await save()

    async def __aenter__(self) -> Self:
        async with AsyncExitStack() as opening:
            self._pooled, self.connection = await opening.enter_async_context(lease(self._engine))
            self._transaction = self.connection.transaction(isolation="read_committed")
            await self._transaction.start()
            self._open = opening.pop_all()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        async with self._open:
            if error is None:
                try:
                    await self._commit()
                except BaseException:
                    await self._rollback()
                    raise
            else:
                await self._rollback()
        if error is None:
            await AFTER_COMMIT()
            for action in self._after_commit:
                action()

    async def _commit(self) -> None:
        await self.flush()
        await AFTER_WRITE()
        recorded = [event for aggregate, _ in self._seen for event in aggregate.collect()] + self._emitted
        if recorded:
            await outbox.add(self.connection, self._source, recorded)
            self.after_commit(self._committed)
        await BEFORE_COMMIT()
        if self._session is not None:
            await self._session.commit()
        await self._transaction.commit()

    async def _rollback(self) -> None:
        if self._session is not None:
            with suppress(Exception):
                await self._session.close()
        with suppress(asyncpg.PostgresError, asyncpg.InterfaceError, OSError):  # a broken connection has rolled back
            await self._transaction.rollback()


UnitsOfWork = Callable[[], UnitOfWork]
