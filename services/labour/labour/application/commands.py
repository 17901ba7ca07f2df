"""What people can do. Each verb works in its caller's unit of work, and so commits with it or not at all."""

from datetime import UTC, datetime, timedelta
from uuid import UUID

from labour.domain.contraction import Contraction
from labour.domain.errors import InviteInvalid, NoSuchUpdate, NotSubscribed
from labour.domain.labour import Labour, Update, UpdateKind
from labour.domain.phone import to_e164
from labour.domain.subscriber import Channel, Invite, Role, Subscriber
from labour.storage import Labours

NOBODYS = UUID(int=0)  # the labour of an invite that does not exist


async def plan_labour(labours: Labours, *, mother_name: str, first_labour: bool = True) -> Labour:
    labour = Labour(mother_id=labours.caller, mother_name=mother_name, first_labour=first_labour, at=_now())
    await labours.add(labour)
    return labour


async def begin_labour(labours: Labours, labour_id: UUID) -> Labour:
    labour = await labours.get(labour_id)
    labour.begin(_now())
    return labour


async def complete_labour(labours: Labours, labour_id: UUID, notes: str | None = None) -> Labour:
    labour = await labours.get(labour_id)
    labour.complete(_now(), notes)
    return labour


async def push(labours: Labours, labour_id: UUID) -> Labour:
    labour = await labours.get(labour_id)
    labour.push(_now())
    return labour


# Contractions


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
    (await labours.get(labour_id)).delete_contraction(contraction_id, _now())


# Updates


async def post_update(labours: Labours, labour_id: UUID, *, kind: UpdateKind, text: str) -> Update:
    update = (await labours.get(labour_id)).post(kind, text, _now())
    labours.keep(update)
    return update


async def take_update_back(labours: Labours, labour_id: UUID, update_id: UUID) -> None:
    labour = await labours.get(labour_id)
    update = await labours.update_of(labour, update_id)
    if update is None:
        raise NoSuchUpdate(labour_id, update_id)
    labour.take_back(update, _now())
    await labours.drop(update)


# People


async def invite(labours: Labours, labour_id: UUID, *, token: str, valid_for: timedelta) -> Invite:
    labour, now = await labours.get(labour_id), _now()
    return labour.invite(token=token, expires_at=now + valid_for, at=now)


async def revoke_invite(labours: Labours, labour_id: UUID, invite_id: UUID) -> None:
    (await labours.get(labour_id)).revoke_invite(invite_id, _now())


async def request_subscription(
    labours: Labours, *, token: str, name: str, phone: str, channel: Channel
) -> tuple[Labour, Subscriber]:
    number = to_e164(phone)
    labour = await labours.invited_to(token)
    if labour is None:
        raise InviteInvalid(NOBODYS)
    asking = labour.request(token=token, user_id=labours.caller, name=name, phone=number, channel=channel, at=_now())
    return labour, asking


async def leave(labours: Labours, subscriber_id: UUID) -> tuple[Labour, Subscriber]:
    labour = await labours.subscribed_to(subscriber_id)
    if labour is None:
        raise NotSubscribed(NOBODYS, subscriber_id)
    return labour, labour.leave(subscriber_id, _now())


async def subscribe(labours: Labours, labour_id: UUID, *, name: str, phone: str) -> Subscriber:
    number = to_e164(phone)
    return (await labours.get(labour_id)).subscribe(name=name, phone=number, at=_now())


async def approve(labours: Labours, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await labours.get(labour_id)).approve(subscriber_id, _now())


async def unsubscribe(labours: Labours, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await labours.get(labour_id)).unsubscribe(subscriber_id, _now())


async def block(labours: Labours, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await labours.get(labour_id)).block(subscriber_id, _now())


async def unblock(labours: Labours, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await labours.get(labour_id)).unblock(subscriber_id, _now())


async def change_role(labours: Labours, labour_id: UUID, subscriber_id: UUID, role: Role) -> Subscriber:
    return (await labours.get(labour_id)).change_role(subscriber_id, role, _now())


def _now() -> datetime:
    return datetime.now(UTC)
