"""Mistakes of a dispatcher."""

from collections.abc import Collection, Sequence
from uuid import UUID

from contracts.events import Event
from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import senders as scenarios
from e2e.experiments.museum.scenarios.senders import NO_CALLBACK
from e2e.experiments.museum.testbed import our_reaction
from messaging.consumer import React, Received
from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.twilio import Accepted, NotSent, SendOutcome, Twilio
from notification.domain.notification import Lease, Notification
from notification.domain.transitions import record_sent

BEHIND_ALL = "late: the birth was sent after 40 texts of another labour"
TWO_TEXTS = "duplicated: labour.completed was told to the same person 2 times"


def write_only(provider: Twilio) -> React[Event]:
    return our_reaction


@exhibit("send inside the transaction", scenarios.a_sender_dies_after_the_call, write_only, 6, TWO_TEXTS)
def send_inside_the_transaction(provider: Twilio) -> React[Event]:
    """The text was sent within the transaction that claims the event. It looks right because a transaction happens
    completely or not at all. But a rollback undoes the claim and the ledger row only. It cannot undo the text, and the
    next delivery sends a second one.
    """

    async def write_and_send(uow: UnitOfWork, events: Sequence[Received[Event]]) -> Collection[UUID]:
        early = await our_reaction(uow, events)
        for lease in (await ledger.take(uow, limit=100, lease_seconds=30, call_within=10)).leases:
            outcome = await provider.send(to=lease.phone, body=lease.body, status_callback=NO_CALLBACK)
            if isinstance(outcome, Accepted):
                await ledger.apply_one(uow, record_sent(lease.id, sid=outcome.sid))
        return early

    return write_and_send


@exhibit("no look at the clock", scenarios.a_sender_is_paused_beyond_its_lease, Dispatcher, 6, TWO_TEXTS)
class NoLookAtTheClock(Dispatcher):
    """The dispatcher took a lease and called the provider, without checking in between whether the lease still held. It
    looks right because the call follows at once. But a process can be paused anywhere, for minutes. Meanwhile its lease
    expires, the provider reports no such text, and another dispatcher sends it. Then the paused dispatcher continues
    and sends it again.
    """

    async def _call(self, lease: Lease) -> SendOutcome:
        callback = f"{self._callback_url}?nid={lease.id}&attempt={lease.attempt}"
        return await self._provider.send(to=lease.phone, body=lease.body, status_callback=callback)


@exhibit("no fence around the outcome", scenarios.a_sender_is_paused_beyond_its_lease, Dispatcher, 6, TWO_TEXTS)
class NoFenceAroundTheOutcome(Dispatcher):
    """The UPDATE that records the outcome of an attempt matched the id of the notification alone. It looks right
    because the dispatcher knows what it did: it was too late, did not call, and puts the text back into the queue. But
    the row is at a later attempt by then. Another dispatcher has sent the text meanwhile, and now it is sent again.
    """

    async def _record(self, lease: Lease, outcome: SendOutcome) -> None:
        if isinstance(outcome, NotSent):
            async with self._units_of_work() as uow:
                await uow.connection.execute("UPDATE notification SET state = 'PENDING' WHERE id = $1", lease.id)
        else:
            await super()._record(lease, outcome)


@exhibit("one queue for all", scenarios.another_labour_has_much_to_say, ledger.insert_pending, 14, BEHIND_ALL)
async def one_queue_for_all(uow: UnitOfWork, notifications: Sequence[Notification]) -> None:
    """All texts waited in one queue, in the order of their arrival. It looks right because the text that came first is
    sent first. But the provider takes about one text a second, and one labour may have fifty people: twenty
    announcements fill the queue for a quarter of an hour, and the birth of another labour waits behind all of them.
    """
    await ledger.insert_pending(uow, notifications)
    await uow.connection.execute("UPDATE notification SET priority = 0, turn = created_at WHERE state = 'PENDING'")
