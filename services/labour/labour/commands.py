"""What people can do. Each verb is one unit of work, tried again when somebody else changed the same labour meanwhile."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import TypeVar
from uuid import UUID

from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm.exc import StaleDataError

from labour.model import Announcement, Labour, Subscriber
from labour.phone import to_e164
from labour.store import Labours
from messaging.unit_of_work import UnitsOfWork

TRIES = 8

T = TypeVar("T")


class TooBusy(Exception):
    """So many people change the same labour at the same moment that we gave up. Nothing was changed."""


async def plan_labour(units_of_work: UnitsOfWork, *, mother_name: str) -> Labour:
    async with units_of_work() as uow:
        labour = Labour(mother_name=mother_name, at=_now())
        Labours(uow).add(labour)
        return labour


async def begin_labour(units_of_work: UnitsOfWork, labour_id: UUID) -> Labour:
    labour, _ = await _change(units_of_work, labour_id, lambda labour, _: labour.begin(_now()))
    return labour


async def complete_labour(units_of_work: UnitsOfWork, labour_id: UUID) -> Labour:
    labour, _ = await _change(units_of_work, labour_id, lambda labour, _: labour.complete(_now()))
    return labour


async def announce(units_of_work: UnitsOfWork, labour_id: UUID, *, text: str) -> Announcement:
    def verb(labour: Labour, labours: Labours) -> Announcement:
        announcement = labour.announce(text, _now())
        labours.keep(announcement)
        return announcement

    _, announcement = await _change(units_of_work, labour_id, verb)
    return announcement


async def subscribe(units_of_work: UnitsOfWork, labour_id: UUID, *, name: str, phone: str) -> Subscriber:
    number = to_e164(phone)
    _, subscriber = await _change(
        units_of_work, labour_id, lambda labour, _: labour.subscribe(name=name, phone=number, at=_now())
    )
    return subscriber


async def unsubscribe(units_of_work: UnitsOfWork, labour_id: UUID, subscriber_id: UUID) -> None:
    await _change(units_of_work, labour_id, lambda labour, _: labour.unsubscribe(subscriber_id, _now()))


async def _change(
    units_of_work: UnitsOfWork, labour_id: UUID, verb: Callable[[Labour, Labours], T]
) -> tuple[Labour, T]:
    """Optimistic: the version column refuses the later of two writers, who then looks again and decides anew."""
    for _ in range(TRIES):
        try:
            async with units_of_work() as uow:
                labours = Labours(uow)
                labour = await labours.get(labour_id)
                return labour, verb(labour, labours)
        except (StaleDataError, IntegrityError):
            continue
    raise TooBusy


def _now() -> datetime:
    return datetime.now(UTC)
