"""Sends each pending SMS, once.

1. Take rows: SENDING, attempt + 1, and a lease, committed before anything is called.
2. Look at the clock: a process that slept too long after step 1 must not call any more, somebody else may be at it.
3. Call the provider. No transaction and no row lock is held meanwhile.
4. Record the outcome, only if the row is still ours; the news of it in the same transaction.

A crash anywhere after 1 leaves a lease that runs out, and then a row in doubt, which `reconcile` settles by asking.

Weakness: between the look at the clock and the first byte on the wire lies a moment in which the process can be frozen.
"""

import asyncio
import time

from structlog import get_logger

from messaging.backoff import Backoff, delay, wait, wait_for_any
from messaging.database import is_transient
from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import ledger
from notification.delivery.twilio import (
    OPTED_OUT,
    Accepted,
    Misconfigured,
    NotSent,
    Refused,
    SendOutcome,
    Twilio,
    Unknown,
)
from notification.domain.notification import Lease

log = get_logger()

AFTER_TAKE = FaultPoint("dispatcher.after_take_before_call", "rows are leased, the provider was not called")
AFTER_CALL = FaultPoint("dispatcher.after_call_before_record", "the provider has answered, the ledger does not know")
AFTER_RECORD = FaultPoint("dispatcher.after_record_before_commit", "the outcome is written, not committed")


class RateLimit:
    """At most `per_second` starts a second, in this process, with a burst of one second's worth, or of one."""

    def __init__(self, per_second: float) -> None:
        self._per_second, self._burst = per_second, max(per_second, 1.0)
        self._tokens, self._at = self._burst, time.monotonic()

    def available(self) -> int:
        now = time.monotonic()
        self._tokens = min(self._burst, self._tokens + (now - self._at) * self._per_second)
        self._at = now
        return int(self._tokens)

    def spend(self, count: int) -> None:
        self._tokens -= count


class Dispatcher:
    """Options, with unit and default:

    callback_url    where the provider reports what became of a message
    lease_seconds   how long a row is ours (30); must exceed the provider client's timeout by a good margin
    call_within     seconds after taking in which the call must have begun (10)
    in_flight       calls at the same time (50)
    per_second      calls a second, of this process (100)
    poll_interval   seconds between looks when nobody hints (1)
    stop_limit      seconds for calls under way when asked to stop; what takes longer is in doubt at once (6)
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
        per_second: float = 100.0,
        poll_interval: float = 1.0,
        stop_limit: float = 6.0,
    ) -> None:
        self._units_of_work, self._provider, self._callback_url = units_of_work, provider, callback_url
        self._lease_seconds, self._call_within = lease_seconds, call_within
        self._in_flight, self._poll_interval, self._stop_limit = in_flight, poll_interval, stop_limit
        self._rate = RateLimit(per_second)
        self._woken = asyncio.Event()
        self._trouble = Backoff(base=1.0, cap=60.0)
        self._paused_until = 0.0

    def wake(self) -> None:
        self._woken.set()

    async def run(self, stop: asyncio.Event) -> None:
        """Until `stop`; then no new rows are taken, and calls under way are finished and recorded."""
        calls = dict[asyncio.Task[None], Lease]()
        backoff = Backoff()
        while not stop.is_set():
            self._woken.clear()
            calls = {call: lease for call, lease in calls.items() if not call.done()}
            try:
                leases = await self.take(self._in_flight - len(calls))
                backoff.reset()
            except Exception as error:
                if not is_transient(error):
                    raise
                pause = backoff.next()
                log.warning("database unavailable", error=type(error).__name__, retry_in=round(pause, 2))
                await wait(stop, pause)
                continue
            calls |= {asyncio.create_task(self.send(lease)): lease for lease in leases}
            if not leases:
                full = calls if len(calls) >= self._in_flight else ()
                await wait_for_any(self._woken, stop, tasks=full, seconds=self._poll_interval)
        if calls:
            _, unfinished = await asyncio.wait(calls, timeout=self._stop_limit)
            await asyncio.gather(*(self._break_off(call, calls[call]) for call in unfinished))

    async def _break_off(self, call: asyncio.Task[None], lease: Lease) -> None:
        """Nobody has to wait for the end of a lease to ask what became of it, unless the database is away, too."""
        call.cancel()
        await asyncio.wait([call])
        try:
            await self._record(lease, Unknown("the sender was stopped during the call"))
        except Exception as error:
            if not is_transient(error):
                raise
            log.error("outcome not recorded", notification_id=str(lease.id), error=type(error).__name__)

    async def run_once(self) -> int:
        """Takes what is due, sends it, and returns how many rows that were."""
        leases = await self.take(self._in_flight)
        await asyncio.gather(*(self.send(lease) for lease in leases))
        return len(leases)

    async def take(self, slots: int) -> list[Lease]:
        limit = min(slots, self._rate.available())
        if time.monotonic() < self._paused_until:
            limit = 0
        elif self._trouble.failures:
            limit = min(limit, 1)  # one to see whether the provider takes us again
        if limit <= 0:
            return []
        async with self._units_of_work() as uow:
            leases = await ledger.take(
                uow.session, limit=limit, lease_seconds=self._lease_seconds, call_within=self._call_within
            )
        self._rate.spend(len(leases))
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
                # With the database away we still know the outcome: worth more than a question to the provider later.
                if not is_transient(error) or ledger.clock() > lease.call_before + self._lease_seconds:
                    log.error("outcome not recorded", notification_id=str(lease.id), error=type(error).__name__)
                    return
                await asyncio.sleep(0.5)

    async def _call(self, lease: Lease) -> SendOutcome:
        if lease.suppressed:
            return Refused(OPTED_OUT, "the person has opted out of messages")
        if ledger.clock() > lease.call_before:
            return NotSent("too late to call under this lease", 0.0)
        callback = f"{self._callback_url}?nid={lease.id}&attempt={lease.attempt}"
        return await self._provider.send(to=lease.phone, body=lease.body, status_callback=callback)

    async def _record(self, lease: Lease, outcome: SendOutcome) -> None:
        async with self._units_of_work() as uow:
            match outcome:
                case Accepted(sid):
                    ours = await ledger.settle_sent(uow, lease.id, sid=sid, attempt=lease.attempt)
                case Refused(code, reason):
                    ours = await ledger.settle_failed(uow, lease.id, attempt=lease.attempt, reason=reason, code=code)
                    if code == OPTED_OUT and not lease.suppressed:  # news from the provider, not our own
                        await ledger.suppress(uow.session, lease.phone)
                case NotSent(reason, retry_in):
                    pause = retry_in + delay(lease.attempt, base=1.0, cap=60.0) if retry_in else 0.0
                    ours = await ledger.put_back(uow, lease, retry_in=pause, why=reason)
                case Misconfigured(reason):
                    ours = await ledger.put_back(uow, lease, retry_in=0.0, why=reason)
                case Unknown(reason):
                    ours = await ledger.doubt(uow, lease, why=reason)
            await AFTER_RECORD()
        self._heed(outcome)
        log.info(
            "sms attempted" if ours else "sms attempt was overtaken",
            notification_id=str(lease.id),
            attempt=lease.attempt,
            outcome=type(outcome).__name__,
            reason=getattr(outcome, "reason", None),
            sid=getattr(outcome, "sid", None),
        )

    def _heed(self, outcome: SendOutcome) -> None:
        """Wrong credentials stop all sending, loudly; one message in a while tries whether they were mended."""
        if isinstance(outcome, Misconfigured):
            if time.monotonic() < self._paused_until:
                return  # said already, by another of the calls under way
            pause = self._trouble.next()
            self._paused_until = time.monotonic() + pause
            log.critical("sending stopped: check TWILIO_ACCOUNT_SID and TWILIO_AUTH_TOKEN", reason=outcome.reason,
                         retry_in=round(pause, 1))  # fmt: skip
        elif isinstance(outcome, Accepted | Refused):
            self._trouble.reset()
