"""Any interleaving of inserts, takes, calls, pauses, delays, crashes and questions keeps the order of each person's texts."""

import asyncio
from collections import defaultdict
from dataclasses import dataclass, field
from typing import cast
from uuid import UUID

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from messaging.unit_of_work import UnitsOfWork
from notification.delivery import ledger
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.reconciler import Reconciler
from notification.delivery.twilio import Accepted, NotSent, SendOutcome, Twilio, Unknown
from notification.domain.notification import BIRTH_WAITS, Lease, Notification
from notification.domain.wording import reference

from .sms_parts import NOWHERE, in_order

DISPATCHERS, PEOPLE, TEXTS = 3, 2, 3


@dataclass
class Provider:
    """Stands for Twilio. `outcomes` decides what becomes of each call; a text that was created is always listed."""

    outcomes: list[str]
    texts: list[str] = field(default_factory=list)  # in the order in which they were created

    async def send(self, *, to: str, body: str, status_callback: str) -> SendOutcome:
        match self.outcomes.pop() if self.outcomes else "accepted":
            case "not sent":
                return NotSent("the provider asks us to slow down", 0.0)
            case "request lost":
                return Unknown("no answer")
            case "reply lost":
                self.texts.append(body)
                return Unknown("no answer")
            case _:
                self.texts.append(body)
                return Accepted(f"SM{len(self.texts):032}")

    async def find(self, *, to: str, reference: str) -> str | None:
        return next((f"SM{number:032}" for number, body in enumerate(self.texts, 1) if reference in body), None)


class System:
    def __init__(self, units: UnitsOfWork, outcomes: list[str]) -> None:
        self.units, self.provider = units, Provider(outcomes)
        twilio = cast("Twilio", self.provider)
        self.dispatchers = [
            Dispatcher(
                units,
                twilio,
                callback_url=NOWHERE,
                lease_seconds=3600,
                call_within=3600,
            )
            for _ in range(DISPATCHERS)
        ]
        self.reconciler = Reconciler(units, twilio, policies={}, quarantine=0.0, ask_interval=0.0)
        self.people = [in_order(f"+120255501{number:02}", count=TEXTS) for number in range(PEOPLE)]
        self.not_posted = [one for texts in self.people for one in texts]
        self.leases = list[Lease]()

    async def step(self, action: str, number: int) -> None:
        match action:
            case "post" if self.not_posted:
                async with self.units() as uow:
                    one = self.not_posted.pop(number % len(self.not_posted))
                    await ledger.insert_pending(uow, [one])
            case "take":
                self.leases += await self.dispatchers[number % DISPATCHERS].take(1 + number % 3)
            case "send" if self.leases:
                lease = self.leases.pop(number % len(self.leases))
                await self.dispatchers[number % DISPATCHERS].send(lease)
            case "die" if self.leases:
                self.leases.pop(number % len(self.leases))
            case "wait":  # until every lease has expired and no call may begin under it
                self.leases = [lease._replace(call_before=0.0) for lease in self.leases]
                await self.execute(
                    "UPDATE notification SET lease_until = now() - interval '1 s' WHERE state = 'SENDING'"
                )
            case "age":  # until births wait no longer for older texts that are pending
                await self.execute(f"UPDATE notification SET created_at = created_at - interval '{BIRTH_WAITS} s'")
            case "reconcile":
                await self.reconciler.run_once()
            case _:
                pass  # there is nothing to post, to send or to die with

    async def settle(self) -> None:
        for one in range(len(self.not_posted)):
            await self.step("post", one)
        for _ in range(3 * PEOPLE * TEXTS):
            for action in ("wait", "reconcile", "take"):
                await self.step(action, 2)
            while self.leases:
                await self.step("send", 0)

    async def execute(self, statement: str) -> None:
        async with self.units() as uow:
            await uow.connection.execute(statement)

    async def states(self) -> dict[UUID, str]:
        async with self.units() as uow:
            return {row["id"]: row["state"] for row in await uow.connection.fetch("SELECT id, state FROM notification")}

    def sequences(self) -> list[list[int]]:
        """The sequences of the texts on each person's phone, in the order in which they came."""
        known = {reference(one.id): (number, one) for number, texts in enumerate(self.people) for one in texts}
        phones = defaultdict[int, list[int]](list)
        for body in self.provider.texts:
            number, one = known[body[-9:]]
            phones[number].append(one.sequence or 0)
        return [phones[number] for number in range(PEOPLE)]


steps = st.tuples(
    st.sampled_from(["post", "post", "take", "take", "send", "send", "die", "wait", "age", "reconcile"]),
    st.integers(0, 11),
)
outcomes = st.lists(st.sampled_from(["accepted", "not sent", "request lost", "reply lost"]), max_size=12)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(steps, min_size=5, max_size=40), outcomes)
async def test_no_interleaving_sends_an_older_text_after_a_newer_one(
    notification_units: UnitsOfWork, history: list[tuple[str, int]], outcomes: list[str]
) -> None:
    system = System(notification_units, outcomes)
    await system.execute("DELETE FROM notification")

    for action, number in history:
        await system.step(action, number)
    await system.settle()

    states = await system.states()
    for texts, sequences in zip(system.people, system.sequences(), strict=True):
        assert sequences == sorted(set(sequences)), "in order, and each at most once"
        for one in texts:
            sent = one.sequence in sequences
            assert states[one.id] == ("SENT" if sent else "SUPERSEDED")
            assert sent or (one.sequence or 0) < max(sequences), "superseded only by a newer one"


async def test_concurrent_takes_and_inserts_never_have_two_texts_to_one_person_under_way(
    notification_units: UnitsOfWork,
) -> None:
    """Eight takes run at the same time as the inserts of an older and a newer text for each of many people."""
    everyone = [in_order(f"+1202555{number:04}", count=2) for number in range(120)]
    order = defaultdict[UUID, list[int]](list)
    known: dict[UUID, Notification] = {one.id: one for texts in everyone for one in texts}
    done = asyncio.Event()

    async def post() -> None:
        for begun, completed in everyone:
            await asyncio.gather(post_one(completed), post_one(begun))
        done.set()

    async def post_one(one: Notification) -> None:
        async with notification_units() as uow:
            await ledger.insert_pending(uow, [one])

    async def take_until_nothing_is_left() -> None:
        while True:
            last = done.is_set()
            async with notification_units() as uow:
                leases, superseded = await ledger.take(uow, limit=5, lease_seconds=60, call_within=60)
            for lease in leases:
                one = known[lease.id]
                order[one.person_id].append(one.sequence or 0)
            if last and not leases and not superseded:
                return
            await asyncio.sleep(0)

    await asyncio.gather(post(), *(take_until_nothing_is_left() for _ in range(8)))

    # No call has ended, so the newer text of a person is under way only if the older one was not there in time.
    assert [taken for taken in order.values() if len(taken) > 1] == []
