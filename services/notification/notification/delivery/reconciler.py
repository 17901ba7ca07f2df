"""Resolves messages in doubt: asks the provider, and lets the policy decide about a message that the provider does not list.

A message that the provider lists was sent, whenever the answer comes. A message counts as absent only if the provider was asked
after the quarantine and did not list it, because providers may create and list messages late. Until then the reconciler asks
again every `ask_interval`. If a newer message to the same person was taken meanwhile, an absent message is superseded under every
policy.

Each pass also drops the messages whose recipients did not agree in time (`consents.py`).

Weakness: if the provider hides a message for longer than the quarantine, the policy `ask` sends it a second time.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass

from structlog import get_logger

from messaging import metrics
from messaging.backoff import delay, wait
from messaging.database import describe, is_transient
from messaging.faults import FaultPoint
from messaging.progress import Outage, step
from messaging.unit_of_work import UnitsOfWork
from notification.delivery import consents, ledger
from notification.delivery.spans import sms_span
from notification.delivery.twilio import Twilio
from notification.domain.errors import ProviderSilent
from notification.domain.notification import InDoubt, NotificationState, Policy
from notification.domain.transitions import record_failed, record_sent, send_again, supersede
from notification.domain.wording import reference

log = get_logger()

AFTER_ASK = FaultPoint(
    "reconcile.after_ask_before_record", "the provider has answered the question, the result is not recorded"
)

HOUR = 3600.0
AT_ONCE = 50  # concurrent questions, so that a provider that hangs costs one timeout and not fifty


@dataclass(slots=True)
class Reconciled:
    """How many messages one pass found at the provider, returned to the queue, superseded, gave up, or left in doubt."""

    found: int = 0
    sent_again: int = 0
    superseded: int = 0
    given_up: int = 0
    in_doubt: int = 0


class Reconciler:
    """Options, with unit and default:

    policies       what to do with an absent message, by event type; `ask` for every type that is not named
    quarantine     seconds after which an absent message is believed to be absent (live 900, local 5)
    ask_interval   seconds between questions about one message (live 30, local 1)
    consent_within seconds for which a message waits for the consent of its recipient (48 hours)
    """

    def __init__(
        self,
        units_of_work: UnitsOfWork,
        provider: Twilio,
        *,
        policies: Mapping[str, Policy],
        quarantine: float,
        ask_interval: float,
        consent_within: float = 48 * HOUR,
    ) -> None:
        self._units_of_work, self._provider, self._policies = units_of_work, provider, policies
        self._quarantine, self._ask_interval, self._consent_within = quarantine, ask_interval, consent_within

    async def run(self, stop: asyncio.Event) -> None:
        outage = Outage("database, for messages in doubt,")
        while not stop.is_set():
            try:
                with step("resolving messages in doubt"):
                    await self.run_once()
                outage.over()
                await wait(stop, min(self._ask_interval, 1.0))
            except Exception as error:
                if not is_transient(error):
                    raise
                await wait(stop, outage.failed(describe(error)))

    async def run_once(self) -> Reconciled:
        async with self._units_of_work() as uow:
            if expired := await ledger.expire_leases(uow.connection):
                log.warning("leases expired", count=expired)
                uow.after_commit(lambda: metrics.messages_moved([NotificationState.IN_DOUBT] * expired))
            if dropped := await consents.expire(uow, validity=self._consent_within):
                log.info("messages dropped without consent", count=dropped)
        async with self._units_of_work() as uow:
            in_doubt = await ledger.take_in_doubt(
                uow.connection, limit=AT_ONCE, ask_interval=self._ask_interval, quarantine=self._quarantine
            )
        counts = Reconciled()
        await asyncio.gather(*(self._reconcile(one, counts) for one in in_doubt))
        return counts

    async def _reconcile(self, one: InDoubt, counts: Reconciled) -> None:
        policy = self._policies.get(one.event_type, Policy.ASK)
        try:
            with sms_span("ask about sms", one) as spans:
                sid = await self._provider.find(to=one.phone, reference=reference(one.id))
                spans.set({"fern.sms.found": sid is not None})
        except ProviderSilent as error:
            log.warning("the provider did not answer a question", notification_id=str(one.id), error=str(error))
            counts.in_doubt += 1
            return
        await AFTER_ASK()
        async with self._units_of_work() as uow:
            if sid is not None:
                await ledger.apply_one(uow, record_sent(one.id, sid=sid, attempt=one.attempt))
                counts.found += 1
                verdict = "found"
            elif one.newer_taken and one.quarantine_over:
                await ledger.apply_one(uow, supersede(one.id, attempt=one.attempt))
                counts.superseded += 1
                verdict = "absent: superseded"
            elif one.newer_taken:
                counts.in_doubt += 1
                verdict = "absent so far"
            elif policy is Policy.AT_LEAST_ONCE or (one.quarantine_over and policy is Policy.ASK):
                # Without a quarantine the pauses must grow, or a provider that lists nothing would cause texts without end.
                pause = delay(one.attempt, base=self._ask_interval, cap=HOUR) if policy is Policy.AT_LEAST_ONCE else 0.0
                await ledger.apply_one(uow, send_again(one.id, attempt=one.attempt, pause=pause))
                counts.sent_again += 1
                verdict = "absent: sending again"
            elif one.quarantine_over and policy is Policy.AT_MOST_ONCE:
                reason = "it is unknown whether it was sent, and this kind of message is never sent twice"
                start = (NotificationState.IN_DOUBT,)
                given_up = record_failed(one.id, attempt=one.attempt, reason=reason, start=start)
                await ledger.apply_one(uow, given_up)
                counts.given_up += 1
                verdict = "absent: given up"
            else:
                counts.in_doubt += 1
                verdict = "waiting for an operator" if one.quarantine_over else "absent so far"
        log.info("asked about a message in doubt", notification_id=str(one.id), attempt=one.attempt, verdict=verdict)
