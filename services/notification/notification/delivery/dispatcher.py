"""Sends each pending SMS once.

1. Take rows: set SENDING, attempt + 1 and a lease, and commit. A message whose newer one was taken is superseded instead.
2. Check the clock: a process that was paused too long after step 1 must not call, because its lease may have expired.
3. Call the provider, with no transaction open and no row locked.
4. Record the outcome and its event in one transaction, only if the row still belongs to this attempt. `recorder.py` does so
   for all outcomes that have arrived.

Dispatchers take one after the other; `queue.py` has the order in which messages are taken, and the limits.

After a crash in step 2, 3 or 4 the lease expires, the row is in doubt, and the reconciler asks the provider.

Weakness: the process can be paused between the check of the clock and the first byte that it sends.
"""

import asyncio
import time
from collections.abc import Set
from datetime import datetime

from structlog import get_logger

from messaging import telemetry
from messaging.backoff import Backoff, wait, wait_for_any
from messaging.database import describe, is_transient
from messaging.faults import FaultPoint
from messaging.progress import Outage, step
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import ledger
from notification.delivery.queue import TAKING
from notification.delivery.recorder import Recorder
from notification.delivery.spans import sms_span
from notification.delivery.twilio import (
    COUNTRY_NOT_ENABLED,
    OPTED_OUT,
    Accepted,
    Misconfigured,
    NotSent,
    PermanentlyRefused,
    SendOutcome,
    Twilio,
    Unknown,
)
from notification.domain import consent
from notification.domain.notification import COUNTRY_NOT_TEXTED, Lease, Limits
from servicekit.countries import country_of

log = get_logger()

AFTER_TAKE = FaultPoint("dispatcher.after_take_before_call", "rows are leased, the provider was not called")
AFTER_CALL = FaultPoint("dispatcher.after_call_before_record", "the provider has answered, the outcome is not recorded")


class Dispatcher:
    """Options, with unit and default:

    callback_url    URL to which the provider reports the status of a message
    lease_seconds   seconds for which a row belongs to this dispatcher (30); at least twice the timeout of the provider's client
    call_within     seconds after the take in which the call must begin (10)
    in_flight       concurrent calls (50). Once all slots are in use, the next take waits until a fifth of them is free
    countries       whose numbers are called (all)
    limits          what all dispatchers together may send (no limits)
    restored_at     when the ledger was restored from a backup (never): messages about earlier events are asked about first
    poll_interval   seconds between polls if no wake-up arrives (1)
    stop_limit      seconds to finish calls when asked to stop; a call that takes longer is cancelled and in doubt (6)
    """

    def __init__(
        self,
        units_of_work: UnitsOfWork,
        provider: Twilio,
        *,
        callback_url: str,
        lease_seconds: float = 30.0,
        call_within: float = 10.0,
        in_flight: int = 50,
        limits: Limits | None = None,
        restored_at: datetime | None = None,
        countries: Set[str] = frozenset(),
        poll_interval: float = 1.0,
        stop_limit: float = 6.0,
    ) -> None:
        self._units_of_work, self._provider, self._callback_url = units_of_work, provider, callback_url
        self._lease_seconds, self._call_within = lease_seconds, call_within
        self._in_flight, self._poll_interval, self._stop_limit = in_flight, poll_interval, stop_limit
        self._recorder = Recorder(units_of_work, self.wake)
        self._limits, self._restored_at, self._countries = limits or Limits(), restored_at, countries
        self._database = Outage("database")
        self._woken = asyncio.Event()
        self._credentials_backoff = Backoff(base=1.0, cap=60.0)
        self._paused_until = 0.0

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Runs until `stop` is set. Then takes no more rows, and finishes and records the calls under way."""
        calls = dict[asyncio.Task[None], Lease]()
        waits_for_slots, enough = False, max(1, self._in_flight // 5)  # one take for several calls that have ended

        def ended(call: asyncio.Task[None]) -> None:
            calls.pop(call)
            if waits_for_slots and self._in_flight - len(calls) >= enough:
                self.wake()

        while not stop.is_set():
            self._woken.clear()
            free = self._in_flight - len(calls)
            try:
                with step("taking messages to send"):
                    leases = await self.take(free)
            except Exception as error:
                if not is_transient(error):
                    raise
                await wait(stop, self._database.failed(describe(error)))
                continue
            for lease in leases:
                call = asyncio.create_task(self.send(lease))
                calls[call] = lease
                call.add_done_callback(ended)
            waits_for_slots = len(leases) == free  # more may be due
            if not waits_for_slots or self._in_flight - len(calls) < enough:
                await wait_for_any(self._woken, stop, seconds=self._poll_interval)
        if calls:
            leases_of = dict(calls)  # a call that ends leaves `calls`
            _, unfinished = await asyncio.wait(leases_of, timeout=self._stop_limit)
            await asyncio.gather(*(self._cancel(call, leases_of[call]) for call in unfinished))

    async def _cancel(self, call: asyncio.Task[None], lease: Lease) -> None:
        """Marks the message in doubt now, so that the reconciler need not wait for the end of the lease."""
        call.cancel()
        await asyncio.wait([call])
        try:
            await self._record(lease, Unknown("the dispatcher was stopped during the call"))
        except Exception as error:
            if not is_transient(error):
                raise
            log.error("outcome not recorded", notification_id=str(lease.id), error=type(error).__name__)

    async def run_once(self) -> int:
        """Takes the rows that are due, sends them, and returns their number."""
        leases = await self.take(self._in_flight)
        await asyncio.gather(*(self.send(lease) for lease in leases))
        return len(leases)

    async def take(self, slots: int) -> list[Lease]:
        limit = slots
        if time.monotonic() < self._paused_until:
            limit = 0
        elif self._credentials_backoff.failures:
            limit = min(limit, 1)  # one attempt, to find out whether the credentials are accepted again
        if limit <= 0:
            return []
        async with self._units_of_work().locking(TAKING, wait=True) as uow:
            leases, settled = await ledger.take(
                uow,
                limit=limit,
                lease_seconds=self._lease_seconds,
                call_within=self._call_within,
                limits=self._limits,
                restored_at=self._restored_at,
            )
        self._database.over()
        if settled:
            log.info("messages superseded or over a limit", count=settled)
            self.wake()  # they counted towards the limit, so more messages may be due
        return leases

    async def send(self, lease: Lease) -> None:
        await AFTER_TAKE()
        outcome = await self._call(lease)
        await AFTER_CALL()
        while True:
            try:
                await self._record(lease, outcome)
                return
            except Exception as error:
                # While the database is unavailable, keep the known outcome: that saves a question to the provider later.
                if not is_transient(error) or ledger.clock() > lease.call_before + self._lease_seconds:
                    log.error("outcome not recorded", notification_id=str(lease.id), error=type(error).__name__)
                    return
                self._database.failed(describe(error))
                await asyncio.sleep(0.5)

    async def _call(self, lease: Lease) -> SendOutcome:
        if lease.suppressed:
            return PermanentlyRefused(OPTED_OUT, consent.OPTED_OUT)
        if self._countries and country_of(lease.phone) not in self._countries:
            return PermanentlyRefused(COUNTRY_NOT_ENABLED, COUNTRY_NOT_TEXTED)
        if lease.ask_first:
            return Unknown("it may have been sent before the ledger was restored")
        if ledger.clock() > lease.call_before:
            return NotSent("too late to call under this lease", 0.0)
        callback = f"{self._callback_url}?nid={lease.id}&attempt={lease.attempt}"
        with sms_span("send sms", lease) as spans:
            if traceparent := telemetry.continuing(lease.origin.traceparent):
                callback += f"&traceparent={traceparent}"
            outcome = await self._provider.send(to=lease.phone, body=lease.body, status_callback=callback)
            spans.set({"fern.sms.outcome": type(outcome).__name__})
        return outcome

    async def _record(self, lease: Lease, outcome: SendOutcome) -> None:
        await self._recorder.record(lease, outcome)
        self._pause_if_misconfigured(outcome)

    def _pause_if_misconfigured(self, outcome: SendOutcome) -> None:
        """Wrong credentials pause all sending. After each pause one message is sent, to find out whether they are accepted."""
        if isinstance(outcome, Misconfigured):
            if time.monotonic() < self._paused_until:
                return  # another call under way has logged it
            pause = self._credentials_backoff.next()
            self._paused_until = time.monotonic() + pause
            log.critical("sending stopped: check TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN", reason=outcome.reason,
                         retry_in=round(pause, 1))  # fmt: skip
        elif isinstance(outcome, Accepted | PermanentlyRefused):
            self._credentials_backoff.reset()
