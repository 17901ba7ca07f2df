"""Settles messages in doubt: asks the provider, and lets the policy decide about what it does not show.

A message counts as absent only when the provider was asked after the quarantine and still did not show it: providers create
late and list late. Until then absence proves nothing and we ask again. What is found, at any time, was sent.

Not covered: a provider that hides a message for longer than the quarantine. Then, under `ask`, the person gets it twice.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from uuid import UUID

from sqlalchemy import text
from structlog import get_logger

from messaging.backoff import Backoff, delay, wait
from messaging.database import is_transient
from messaging.faults import FaultPoint
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import ledger
from notification.delivery.twilio import ProviderSilent, Twilio
from notification.domain.notification import Policy, State
from notification.domain.wording import reference

log = get_logger()

AFTER_ASK = FaultPoint(
    "reconcile.after_ask_before_record", "the provider has said what became of it, the ledger is as before"
)

HOUR = 3600.0
AT_ONCE = 50  # questions; side by side, so that a provider which hangs costs one timeout and not fifty

# Taken for `ask_interval`, so that several reconcilers do not ask about the same message, and one that dies is replaced.
_TAKE = text("""
    UPDATE notification SET next_attempt_at = clock_timestamp() + make_interval(secs => :ask_interval)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'IN_DOUBT' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, event_type,
        clock_timestamp() >= in_doubt_at + make_interval(secs => :quarantine) AS settled
""")


@dataclass(frozen=True, slots=True)
class Doubtful:
    id: UUID
    attempt: int
    phone: str
    event_type: str
    settled: bool  # the quarantine was over before we ask


@dataclass(slots=True)
class Settled:
    found: int = 0
    sent_again: int = 0
    given_up: int = 0
    open: int = 0


class Reconciler:
    """Options, with unit and default:

    policies       what to do with an absent message, by event type; `ask` for all that are not named
    quarantine     seconds after which the provider's "no such message" is believed (live 900, local 5)
    ask_interval   seconds between questions about one message (live 30, local 1)
    """

    def __init__(
        self,
        units_of_work: UnitsOfWork,
        provider: Twilio,
        *,
        policies: Mapping[str, Policy],
        quarantine: float,
        ask_interval: float,
    ) -> None:
        self._units_of_work, self._provider, self._policies = units_of_work, provider, policies
        self._quarantine, self._ask_interval = quarantine, ask_interval

    async def run(self, stop: asyncio.Event) -> None:
        backoff = Backoff()
        while not stop.is_set():
            try:
                await self.run_once()
                backoff.reset()
                await wait(stop, min(self._ask_interval, 1.0))
            except Exception as error:
                if not is_transient(error):
                    raise
                await wait(stop, backoff.next())

    async def run_once(self) -> Settled:
        async with self._units_of_work() as uow:
            if expired := await ledger.expire_leases(uow.session):
                log.warning("leases ran out", count=expired)
        async with self._units_of_work() as uow:
            rows = await uow.session.execute(
                _TAKE, {"ask_interval": self._ask_interval, "quarantine": self._quarantine, "limit": AT_ONCE}
            )
            doubtful = [Doubtful(**row) for row in rows.mappings()]
        settled = Settled()
        await asyncio.gather(*(self._settle(one, settled) for one in doubtful))
        return settled

    async def _settle(self, one: Doubtful, count: Settled) -> None:
        policy = self._policies.get(one.event_type, Policy.ASK)
        try:
            sid = await self._provider.find(to=one.phone, reference=reference(one.id))
        except ProviderSilent as error:
            log.warning("the provider does not answer questions", notification_id=str(one.id), error=str(error))
            count.open += 1
            return
        await AFTER_ASK()
        async with self._units_of_work() as uow:
            if sid is not None:
                await ledger.settle_sent(uow, one.id, sid=sid, attempt=one.attempt)
                count.found += 1
                verdict = "found"
            elif policy is Policy.AT_LEAST_ONCE or (one.settled and policy is Policy.ASK):
                # Without a quarantine the waits grow, or a provider that shows nothing would have a phone ring without end.
                pause = delay(one.attempt, base=self._ask_interval, cap=HOUR) if policy is Policy.AT_LEAST_ONCE else 0.0
                await ledger.send_again(uow, one.id, attempt=one.attempt, pause=pause)
                count.sent_again += 1
                verdict = "absent: sending again"
            elif one.settled and policy is Policy.AT_MOST_ONCE:
                reason = "nobody knows whether it went out, and this kind of message is never sent twice"
                await ledger.settle_failed(uow, one.id, attempt=one.attempt, reason=reason, start=(State.IN_DOUBT,))
                count.given_up += 1
                verdict = "absent: given up"
            else:
                count.open += 1
                verdict = "absent so far" if not one.settled else "waiting for a person"
        log.info("asked about a message in doubt", notification_id=str(one.id), attempt=one.attempt, verdict=verdict)
