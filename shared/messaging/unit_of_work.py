"""One business transaction: the change and its events are committed together, or neither is.

    async with units_of_work() as uow:
        labour = await Labours(uow).get(labour_id)
        labour.complete(now)

A clean exit commits and an exception rolls back. There is no public `commit()`: only the code that opened the unit of work ends
it, so code that receives one cannot commit half of it.
"""

from collections.abc import Awaitable, Callable
from datetime import datetime
from types import TracebackType
from typing import Self
from uuid import UUID

import asyncpg
from sqlalchemy.ext.asyncio import AsyncEngine

from messaging import outbox, sequences
from messaging.aggregate import Aggregate, DomainEvent, Recorded
from messaging.clock import new_id
from messaging.database import Statement, as_one, driver_connection, rollback
from messaging.errors import LockHeld
from messaging.faults import FaultPoint

AFTER_WRITE = FaultPoint(
    "uow.after_write_before_events", "the change is written, its events are not, nothing is committed"
)
BEFORE_COMMIT = FaultPoint("uow.before_commit", "change and events are written, nothing is committed")
AFTER_COMMIT = FaultPoint("uow.after_commit_before_wakeup", "committed, the relay is not woken yet")

_BEGIN = "BEGIN ISOLATION LEVEL READ COMMITTED"
_LOCK = "SELECT WHERE pg_try_advisory_xact_lock({:d})"  # its number of rows is the answer
_WAIT_FOR_LOCK = "SELECT pg_advisory_xact_lock({:d})"

Save = Callable[[], Awaitable[None]]


class UnitOfWork:
    """`source` names the service in its events. `committed` is called after each commit that wrote events.

    `connection` is open and in a transaction until the unit of work ends.
    """

    connection: asyncpg.Connection

    def __init__(self, engine: AsyncEngine, *, source: str, committed: Callable[[], None]) -> None:
        self._source, self._committed = source, committed
        self._after_commit: list[Callable[[], None]] = []
        self._seen: list[tuple[Aggregate, Save]] = []
        self._emitted: list[Recorded] = []
        self._at_commit: list[Statement] = []
        self._lease = driver_connection(engine)
        self._lock: str | None = None

    def locking(self, key: int, *, wait: bool = False) -> Self:
        """Take this advisory lock with the transaction. If another transaction has it, `LockHeld` is raised; with `wait`, this
        one waits for its end.
        """
        self._lock = (_WAIT_FOR_LOCK if wait else _LOCK).format(key)
        return self

    def see(self, aggregate: Aggregate, save: Save) -> None:
        """Register an aggregate whose events are collected at the end. Repositories call this for all they load or add.

        `save` writes what has changed since it last did.
        """
        self._seen.append((aggregate, save))

    def emit(
        self, event: DomainEvent, *, key: str, at: datetime, id: UUID | None = None, traceparent: str | None = None
    ) -> None:
        """Add an event of a row that is not an aggregate. Give it an `id` that follows from its cause if there is one, and the
        trace context that is stored with the row.
        """
        self._emitted.append(Recorded(event, key, at, id=id or new_id(), traceparent=traceparent))

    def after_commit(self, action: Callable[[], None]) -> None:
        """Run `action` once after the commit, never after a rollback. A crash after the commit loses it: for wake-ups only."""
        if action not in self._after_commit:
            self._after_commit.append(action)

    def at_commit(self, statement: str, *arguments: object) -> None:
        """Run a statement that returns nothing together with the insert of the events, in one round trip."""
        self._at_commit.append((statement, arguments))

    async def flush(self) -> None:
        """Write the changes of all aggregates seen. Raises `Stale` if one was changed meanwhile."""
        for _, save in self._seen:
            await save()

    async def __aenter__(self) -> Self:
        self.connection = await self._lease.__aenter__()
        try:
            await self._begin()
        except BaseException as error:
            await self._release(error)
            raise
        return self

    async def _begin(self) -> None:
        if self._lock is None:
            await self.connection.execute(_BEGIN)
        elif await self.connection.execute(f"{_BEGIN}; {self._lock}") == "SELECT 0":  # one round trip
            raise LockHeld

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if error is not None:
            await self._release(error)
            return
        try:
            await self._commit()
        except BaseException as failure:
            await self._release(failure)
            raise
        await self._release(None)
        await AFTER_COMMIT()
        for action in self._after_commit:
            action()

    async def _commit(self) -> None:
        await self.flush()
        await AFTER_WRITE()
        recorded = [event for aggregate, _ in self._seen for event in aggregate.collect()]
        if self._emitted:
            recorded += await sequences.number(self.connection, self._emitted)
        if recorded:
            self._at_commit.append(outbox.insert(self._source, recorded))
            self.after_commit(self._committed)
        if self._at_commit:
            statement, arguments = as_one(self._at_commit)
            await self.connection.execute(statement, *arguments)
        await BEFORE_COMMIT()
        if await self.connection.execute("COMMIT") != "COMMIT":  # the server's answer if a statement has failed
            raise RuntimeError(
                "A statement of this unit of work failed, and its error was hidden: nothing is committed."
            )

    async def _release(self, error: BaseException | None) -> None:
        """Return the connection, without an open transaction. `error` tells whether it is of further use."""
        try:
            await rollback(self.connection)
        finally:
            await self._lease.__aexit__(None, error, None)


UnitsOfWork = Callable[[], UnitOfWork]
