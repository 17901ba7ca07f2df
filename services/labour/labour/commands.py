"""What people can do. Each verb works in a unit of work that its caller opened, and so commits with it or not at all."""

from datetime import UTC, datetime
from uuid import UUID

from labour.model import Announcement, Labour, Subscriber
from labour.phone import to_e164
from labour.store import Labours
from messaging.unit_of_work import UnitOfWork


async def plan_labour(uow: UnitOfWork, *, mother_name: str) -> Labour:
    labour = Labour(mother_name=mother_name, at=_now())
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
