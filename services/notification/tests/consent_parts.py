"""Parts of the tests of consent: a labour whose events are handled by consumers that require it."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourAnnounced, LabourBegun, LabourCompletedV2, SubscriberAdded, SubscriberRemoved
from messaging.consumer import Received
from messaging.envelope import Envelope
from messaging.unit_of_work import UnitOfWork
from notification.application.batch_reaction import react_to_batch
from notification.domain.consent import Mode

from .sms_parts import PHONE, PostOffice

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
BEGUN = "FernLabour: Ada is in labour. We will tell you when the baby is here. Reply STOP to stop."
BORN = "FernLabour: The baby is here! Ada has given birth. Reply STOP to stop."
WAITING = "AWAITING_CONSENT"
DAY = 86400.0
ASKED = "FernLabour: {} would like to text you when her baby is born. Reply YES to agree, STOP to refuse."


class Course:
    """The events of one labour, in order. Each method returns the next event as a consumer gets it."""

    def __init__(self, mother: str = "Ada") -> None:
        self.labour_id, self.mother, self.version, self.sequence = uuid7(), mother, 0, 0

    def add(self, phone: str = PHONE, person_id: UUID | None = None) -> Received[Event]:
        self.version += 1
        return self._received(
            SubscriberAdded(
                labour_id=self.labour_id,
                roster_version=self.version,
                person_id=person_id or uuid7(),
                name="Grace",
                phone=phone,
                mother_name=self.mother,
            )
        )

    def remove(self, person_id: UUID) -> Received[Event]:
        self.version += 1
        removed = SubscriberRemoved(labour_id=self.labour_id, roster_version=self.version, person_id=person_id)
        return self._received(removed)

    def begin(self) -> Received[Event]:
        return self._received(LabourBegun(**self._facts, begun_at=NOW))

    def announce(self) -> Received[Event]:
        return self._received(LabourAnnounced(**self._facts, text="Nearly there!"))

    def complete(self) -> Received[Event]:
        return self._received(LabourCompletedV2(**self._facts, completed_at=NOW, baby_name=None))

    @property
    def _facts(self) -> dict[str, Any]:
        return {"labour_id": self.labour_id, "roster_version": self.version, "mother_name": self.mother}

    def _received(self, event: Event) -> Received[Event]:
        self.sequence += 1
        event_id, subject = uuid7(), str(self.labour_id)
        envelope = Envelope(event_id, "labour", event.type, 1, subject, NOW, None, b"", self.sequence)
        return Received(event_id, envelope, event)


async def react(uow: UnitOfWork, *events: Received[Event], consent: Mode = Mode.REQUIRED) -> None:
    assert not await react_to_batch(uow, events, wake_dispatcher=lambda: None, consent=consent)


async def handle(office: PostOffice, *events: Received[Event], consent: Mode = Mode.REQUIRED) -> None:
    async with office.units() as uow:
        await react(uow, *events, consent=consent)


async def ledger_rows(office: PostOffice) -> Sequence[asyncpg.Record]:
    async with office.units() as uow:
        rows: Sequence[asyncpg.Record] = await uow.connection.fetch(
            "SELECT * FROM notification ORDER BY sequence NULLS FIRST, id"
        )
        return rows


async def states(office: PostOffice) -> list[tuple[str, str]]:
    """The event type and state of each message: first the questions for consent, then the others in the order of their events."""
    return [(row["event_type"], row["state"]) for row in await ledger_rows(office)]


async def consent_of(office: PostOffice, phone: str = PHONE) -> str | None:
    async with office.units() as uow:
        state: str | None = await uow.connection.fetchval("SELECT state FROM consent WHERE phone = $1", phone)
        return state


async def send_all(office: PostOffice) -> None:
    while await office.dispatcher().run_once():
        pass


def on_the_phone(office: PostOffice, phone: str = PHONE) -> list[str]:
    """The texts that the phone has, oldest first, without their references."""
    texts = reversed(office.sms.sandbox.store.newest(phone, 100))
    return [message.body.rpartition(" #")[0] for message in texts if message.direction != "inbound"]


async def grow_older(office: PostOffice, *, table: str = "notification", column: str = "created_at", days: int) -> None:
    async with office.units() as uow:
        await uow.connection.execute(f"UPDATE {table} SET {column} = {column} - make_interval(days => $1)", days)


async def reasons(office: PostOffice, event: str) -> list[str]:
    """The reasons in the events of this type."""
    async with office.units() as uow:
        rows = await uow.connection.fetch("SELECT payload FROM outbox WHERE topic = $1 ORDER BY position", event)
        return [json.loads(row["payload"])["reason"] for row in rows]
