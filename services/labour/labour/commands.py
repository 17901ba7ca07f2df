"""What people can do. Each verb works in its caller's unit of work, and so commits with it or not at all."""

from datetime import UTC, datetime
from uuid import UUID

from labour.contractions import Contraction
from labour.model import Announcement, Labour, Subscriber
from labour.phone import to_e164
from labour.store import Labours


async def plan_labour(labours: Labours, *, mother_name: str, first_labour: bool = True) -> Labour:
    labour = Labour(mother_name=mother_name, first_labour=first_labour, at=_now())
    labours.add(labour)
    return labour


async def begin_labour(labours: Labours, labour_id: UUID) -> Labour:
    labour = await labours.get(labour_id)
    labour.begin(_now())
    return labour


async def complete_labour(labours: Labours, labour_id: UUID) -> Labour:
    labour = await labours.get(labour_id)
    labour.complete(_now())
    return labour


async def push(labours: Labours, labour_id: UUID) -> Labour:
    labour = await labours.get(labour_id)
    labour.push(_now())
    return labour


async def start_contraction(labours: Labours, labour_id: UUID, started_at: datetime | None) -> Contraction:
    labour, now = await labours.get(labour_id), _now()
    return labour.start_contraction(started_at or now, now)


async def end_contraction(
    labours: Labours, labour_id: UUID, contraction_id: UUID, *, ended_at: datetime | None, intensity: int
) -> Contraction:
    labour, now = await labours.get(labour_id), _now()
    return labour.end_contraction(contraction_id, ended_at or now, intensity, now)


async def correct_contraction(
    labours: Labours,
    labour_id: UUID,
    contraction_id: UUID,
    *,
    started_at: datetime | None,
    ended_at: datetime | None,
    intensity: int | None,
) -> Contraction:
    labour = await labours.get(labour_id)
    return labour.correct_contraction(
        contraction_id, _now(), started_at=started_at, ended_at=ended_at, intensity=intensity
    )


async def delete_contraction(labours: Labours, labour_id: UUID, contraction_id: UUID) -> None:
    labour = await labours.get(labour_id)
    labour.delete_contraction(contraction_id, _now())


async def announce(labours: Labours, labour_id: UUID, *, text: str) -> Announcement:
    announcement = (await labours.get(labour_id)).announce(text, _now())
    labours.keep(announcement)
    return announcement


async def subscribe(labours: Labours, labour_id: UUID, *, name: str, phone: str) -> Subscriber:
    number = to_e164(phone)
    labour = await labours.get(labour_id)
    return labour.subscribe(name=name, phone=number, at=_now())


async def unsubscribe(labours: Labours, labour_id: UUID, subscriber_id: UUID) -> None:
    labour = await labours.get(labour_id)
    labour.unsubscribe(subscriber_id, _now())


def _now() -> datetime:
    return datetime.now(UTC)
