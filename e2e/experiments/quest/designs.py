"""Three ways to send a text for an event, each as small as it can be, on the same client and the same database.

InsideTheClaim   claim the event, send, commit: as if the text were a row of the database
RecordThenSend   claim the event, commit, then send: never twice, but who knows whether once
LedgerAndAsking  ours: `notification.dispatcher` and `notification.reconcile`, unchanged
"""

import asyncio
from collections.abc import Sequence
from typing import Protocol

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine

from e2e.experiments.quest.misfortune import LEASE, QUARANTINE, TIMEOUT, Crash, Misfortune, Wire
from messaging.unit_of_work import UnitOfWork
from notification.delivery import dispatcher, ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Accepted
from notification.domain.notification import Notification

CALLBACK = "http://127.0.0.1:9/"  # nobody listens: asking alone must do
ACK_DEADLINE = 0.3  # seconds until the bus delivers an event a second time

CREATE_CLAIMS = "CREATE TABLE IF NOT EXISTS claimed (design text, event_id uuid, PRIMARY KEY (design, event_id))"
_CLAIM = text("INSERT INTO claimed VALUES (:design, :event_id) ON CONFLICT DO NOTHING")
_UNSETTLED = text("SELECT count(*) FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')")


class Design(Protocol):
    name: str
    timeout: float

    def __init__(self, engine: AsyncEngine, wire: Wire, misfortune: Misfortune) -> None: ...

    async def tell(self, everyone: Sequence[Notification]) -> None:
        """Returns when the design regards everything as done."""


class _Consumer:
    """The frame of the first two: a bus delivers each event until it is acknowledged, and then once more."""

    name: str
    timeout = 5.0  # of a call, in seconds

    def __init__(self, engine: AsyncEngine, wire: Wire, misfortune: Misfortune) -> None:
        self.engine, self.wire, self.misfortune = engine, wire, misfortune

    async def tell(self, everyone: Sequence[Notification]) -> None:
        await asyncio.gather(*(self._deliver(one) for one in everyone))

    async def _deliver(self, one: Notification) -> None:
        first = asyncio.create_task(self._until_acknowledged(one))
        await asyncio.wait([first], timeout=ACK_DEADLINE)
        await asyncio.gather(
            first, self._until_acknowledged(one)
        )  # a bus that promises at least once may do that any time

    async def _until_acknowledged(self, one: Notification) -> None:
        while not await self._acknowledges(one):
            pass

    async def _acknowledges(self, one: Notification) -> bool:
        try:
            await self.handle(one)
        except (Crash, NotAccepted):
            return False
        return True

    async def handle(self, one: Notification) -> None:
        raise NotImplementedError

    async def claim(self, connection: AsyncConnection, one: Notification) -> bool:
        claimed = await connection.execute(_CLAIM, {"design": self.name, "event_id": one.event_id})
        return claimed.rowcount == 1


class NotAccepted(Exception):
    """The call did not end well; whether a text went out is another question."""


class InsideTheClaim(_Consumer):
    name = "send in the claim"

    async def handle(self, one: Notification) -> None:
        async with self.engine.begin() as connection:
            if not await self.claim(connection, one):
                return
            await self.misfortune.may_pause()
            if not isinstance(await self.wire.send(to=one.phone, body=one.body, status_callback=CALLBACK), Accepted):
                raise NotAccepted  # rolls the claim back: the event comes again, and so does the call
            await self.misfortune.may_crash_before_commit()


class RecordThenSend(_Consumer):
    name = "record, then send"

    async def handle(self, one: Notification) -> None:
        async with self.engine.begin() as connection:
            if not await self.claim(connection, one):
                return
        await self.misfortune.may_pause()
        await self.wire.send(
            to=one.phone, body=one.body, status_callback=CALLBACK
        )  # however it ends, it was the only try


class LedgerAndAsking:
    name = "ledger and asking"
    timeout = TIMEOUT

    def __init__(self, engine: AsyncEngine, wire: Wire, misfortune: Misfortune) -> None:
        self.engine, self.misfortune = engine, misfortune
        call_within = (LEASE - TIMEOUT) / 2 if misfortune.guarded else 3600.0
        self.dispatcher = Dispatcher(
            self._unit_of_work,
            wire,
            callback_url=CALLBACK,
            lease_seconds=LEASE,
            call_within=call_within,
            poll_interval=0.05,
        )
        self.reconciler = Reconciler(
            self._unit_of_work, wire, policies={}, quarantine=QUARANTINE, ask_interval=QUARANTINE / 10
        )

    def _unit_of_work(self) -> UnitOfWork:
        return UnitOfWork(self.engine, source="notification", committed=lambda: None)

    async def tell(self, everyone: Sequence[Notification]) -> None:
        dispatcher.AFTER_TAKE.arm(self.misfortune.may_pause)
        dispatcher.AFTER_RECORD.arm(self.misfortune.may_crash_before_commit)
        async with self._unit_of_work() as uow:
            await ledger.insert_pending(uow.session, everyone)
        stop = asyncio.Event()
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.dispatcher.run(stop))
            tasks.create_task(self.reconciler.run(stop))
            while await self._unsettled():  # noqa: ASYNC110  (only the database knows)
                await asyncio.sleep(0.02)
            stop.set()  # the dispatcher ends when its last call has: also one that was paused
        dispatcher.AFTER_TAKE.disarm()
        dispatcher.AFTER_RECORD.disarm()

    async def _unsettled(self) -> bool:
        async with self.engine.connect() as connection:
            return bool(await connection.scalar(_UNSETTLED))


DESIGNS: tuple[type[Design], ...] = (InsideTheClaim, RecordThenSend, LedgerAndAsking)
