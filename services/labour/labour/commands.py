"""What people can do. Each verb works in a unit of work that its caller opened, and so commits with it or not at all."""

from datetime import UTC, datetime
from uuid import UUID

from labour.contractions import Contraction
from labour.model import Announcement, Labour, Subscriber
from labour.phone import to_e164
from labour.store import Labours
from messaging.unit_of_work import UnitOfWork


async def plan_labour(uow: UnitOfWork, *, mother_name: str, first_labour: bool = True) -> Labour:
    labour = Labour(mother_name=mother_name, first_labour=first_labour, at=_now())
    Labours(uow).add(labour)
    return labour


async def begin_labour(uow: UnitOfWork, labour_id: UUID) -> Labour:
    labour = await Labours(uow).get(labour_id)
    labour.begin(_now())
    return labour


async def complete_labour(uow: UnitOfWork, labour_id: UUID) -> Labour:
    labour = await Labours(uow).get(labour_id)
    labour.complete(_now())
    return labour


async def push(uow: UnitOfWork, labour_id: UUID) -> Labour:
    labour = await Labours(uow).get(labour_id)
    labour.push(_now())
    return labour


async def start_contraction(uow: UnitOfWork, labour_id: UUID, started_at: datetime | None) -> Contraction:
    labour, now = await Labours(uow).get(labour_id), _now()
    return labour.start_contraction(started_at or now, now)


async def end_contraction(
    uow: UnitOfWork, labour_id: UUID, contraction_id: UUID, *, ended_at: datetime | None, intensity: int
) -> Contraction:
    labour, now = await Labours(uow).get(labour_id), _now()
    return labour.end_contraction(contraction_id, ended_at or now, intensity, now)


async def correct_contraction(
    uow: UnitOfWork,
    labour_id: UUID,
    contraction_id: UUID,
    *,
    started_at: datetime | None,
    ended_at: datetime | None,
    intensity: int | None,
) -> Contraction:
    labour = await Labours(uow).get(labour_id)
    return labour.correct_contraction(
        contraction_id, _now(), started_at=started_at, ended_at=ended_at, intensity=intensity
    )


async def delete_contraction(uow: UnitOfWork, labour_id: UUID, contraction_id: UUID) -> None:
    labour = await Labours(uow).get(labour_id)
    labour.delete_contraction(contraction_id, _now())


async def announce(uow: UnitOfWork, labour_id: UUID, *, text: str) -> Announcement:
    labours = Labours(uow)
    announcement = (await labours.get(labour_id)).announce(text, _now())
    labours.keep(announcement)
    return announcement


async def subscribe(uow: UnitOfWork, labour_id: UUID, *, name: str, phone: str) -> Subscriber:
    number = to_e164(phone)
    labour = await Labours(uow).get(labour_id)
    return labour.subscribe(name=name, phone=number, at=_now())


async def unsubscribe(uow: UnitOfWork, labour_id: UUID, subscriber_id: UUID) -> None:
    labour = await Labours(uow).get(labour_id)
    labour.unsubscribe(subscriber_id, _now())


def _now() -> datetime:
    return datetime.now(UTC)
