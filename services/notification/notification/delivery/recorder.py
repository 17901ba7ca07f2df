"""Records the outcomes of calls: all that have arrived, in one transaction.

While a transaction is under way, the outcomes that arrive wait, and the next transaction writes all of them, as a group commit
does. There is no timer: an outcome that arrives alone is written at once. Each outcome is still conditional on the state and the
attempt of its row, and the events of all are added to the outbox in the same transaction.

If a transaction fails because of what it writes, its outcomes are recorded one by one, so that a bad one affects only itself. If
the database is unavailable, all of them fail, and the tasks that wait for them try again.
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable, Collection
from typing import NamedTuple
from uuid import UUID

from structlog import get_logger

from messaging import metrics, telemetry
from messaging.backoff import delay
from messaging.database import is_transient
from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import consents, ledger
from notification.delivery.twilio import (
    OPTED_OUT,
    Accepted,
    Misconfigured,
    NotSent,
    PermanentlyRefused,
    SendOutcome,
    Unknown,
)
from notification.domain.notification import Lease
from notification.domain.transitions import (
    Transition,
    mark_in_doubt,
    record_failed,
    record_sent,
    return_to_queue,
)

log = get_logger()

AFTER_RECORD = FaultPoint("dispatcher.after_record_before_commit", "the outcomes are written, not committed")


LABELS: dict[type[SendOutcome], str] = {
    Accepted: "accepted",
    PermanentlyRefused: "refused",
    NotSent: "not_sent",
    Misconfigured: "misconfigured",
    Unknown: "unknown",
}  # of the outcomes in the metrics


class _Waiting(NamedTuple):
    lease: Lease
    outcome: SendOutcome
    recorded: asyncio.Future[bool]


class Recorder:
    """`wake` is called after each commit that lets a newer message to the same person be taken."""

    def __init__(self, units_of_work: UnitsOfWork, wake: Callable[[], None]) -> None:
        self._units_of_work, self._wake = units_of_work, wake
        self._waiting = list[_Waiting]()
        self._writing: asyncio.Task[None] | None = None

    async def record(self, lease: Lease, outcome: SendOutcome) -> bool:
        """Returns after the commit: False if the row no longer belongs to this attempt. Raises what the transaction raised.

        An outcome is recorded even if the task that waits for it is cancelled.
        """
        one = _Waiting(lease, outcome, asyncio.get_running_loop().create_future())
        self._waiting.append(one)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_all(), name="recorder")
        return await one.recorded

    async def _write_all(self) -> None:
        try:
            while self._waiting:
                await self._write(self._next_group())
        finally:
            self._writing = None

    def _next_group(self) -> Collection[_Waiting]:
        """The waiting outcomes, but only the first one of each message: the outcome of its call and that of a stop during the
        call are written in this order.
        """
        group, later = dict[UUID, _Waiting](), list[_Waiting]()
        for one in self._waiting:
            if group.setdefault(one.lease.id, one) is not one:
                later.append(one)
        self._waiting = later
        return group.values()

    async def _write(self, group: Collection[_Waiting]) -> None:
        try:
            changed = await self._in_one_transaction(group)
        except BaseException as error:
            if isinstance(error, Exception) and not is_transient(error) and len(group) > 1:
                log.warning("recording outcomes one by one", size=len(group), error=type(error).__name__)
                for one in group:
                    await self._write([one])
                return
            for one in group:
                if not one.recorded.done():  # it is done if the task that waits was cancelled
                    one.recorded.set_exception(error)
            if isinstance(error, asyncio.CancelledError):
                raise
        else:
            outcomes = Counter(LABELS[type(one.outcome)] for one in group)
            metrics.sms_attempted(outcomes)
            log.info("sms outcomes recorded", **outcomes)
            for one in group:
                _log(one, ours=one.lease.id in changed)
                if not one.recorded.done():
                    one.recorded.set_result(one.lease.id in changed)

    async def _in_one_transaction(self, group: Collection[_Waiting]) -> set[UUID]:
        with telemetry.outside():  # its events continue the traces of their messages
            return await self._apply(group)

    async def _apply(self, group: Collection[_Waiting]) -> set[UUID]:
        async with self._units_of_work() as uow:
            changed = await ledger.apply(uow, [_transition(one.lease, one.outcome) for one in group], wake=self._wake)
            if opted_out := [one.lease.id for one in group if _is_new_opt_out(one.lease, one.outcome)]:
                await consents.refuse_as_provider(uow, opted_out)
            await AFTER_RECORD()
        return changed


def _log(one: _Waiting, *, ours: bool) -> None:
    """What was not accepted, and what came too late, is at INFO. A line for each accepted message is at DEBUG: it would cost as
    much as the record of the outcome.
    """
    usual = ours and isinstance(one.outcome, Accepted)
    if usual and not log.is_enabled_for(logging.DEBUG):
        return
    (log.debug if usual else log.info)(
        "sms attempted" if ours else "late sms outcome ignored",
        notification_id=str(one.lease.id),
        attempt=one.lease.attempt,
        outcome=type(one.outcome).__name__,
        reason=getattr(one.outcome, "reason", None),
        sid=getattr(one.outcome, "sid", None),
    )


def _transition(lease: Lease, outcome: SendOutcome) -> Transition:
    match outcome:
        case Accepted(sid):
            return record_sent(lease.id, sid=sid, attempt=lease.attempt)
        case PermanentlyRefused(code, reason):
            return record_failed(lease.id, attempt=lease.attempt, reason=reason, code=code)
        case NotSent(reason, retry_in):
            pause = retry_in + delay(lease.attempt, base=1.0, cap=60.0) if retry_in else 0.0
            return return_to_queue(lease, retry_in=pause, reason=reason)
        case Misconfigured(reason):
            return return_to_queue(lease, retry_in=0.0, reason=reason)
        case Unknown(reason):
            return mark_in_doubt(lease, reason=reason)


def _is_new_opt_out(lease: Lease, outcome: SendOutcome) -> bool:
    """True if the provider refused the message because of an opt-out that we have not recorded."""
    return isinstance(outcome, PermanentlyRefused) and outcome.code == OPTED_OUT and not lease.suppressed
