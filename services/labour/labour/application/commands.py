"""The commands. Each runs in the unit of work of its context, and is committed with it or not at all."""

from datetime import datetime, timedelta
from uuid import UUID

from labour.application.access import CommandContext
from labour.domain.contraction import Contraction, Phase
from labour.domain.errors import InviteInvalid, NoSuchUpdate, NotSubscribed, TextNotAllowed
from labour.domain.invite import Invite
from labour.domain.labour import Labour
from labour.domain.phone import to_e164
from labour.domain.subscriber import Channel, Role, Subscriber
from labour.domain.update import Update, UpdateKind
from messaging import clock
from servicekit.text import problem_for_readers, problem_with_name


async def plan_labour(context: CommandContext, *, mother_name: str, first_labour: bool = True) -> Labour:
    _check_name("mother_name", mother_name)
    labour = Labour(mother_id=context.caller, mother_name=mother_name, first_labour=first_labour, at=_now())
    await context.labours.add(labour)
    context.usage.plan()
    return labour


async def begin_labour(context: CommandContext, labour_id: UUID) -> Labour:
    labour = await context.labour(labour_id)
    labour.begin(_now())
    context.usage.notify(labour)
    return labour


async def complete_labour(
    context: CommandContext, labour_id: UUID, notes: str | None = None, baby_name: str | None = None
) -> Labour:
    if baby_name is not None:
        _check_name("baby_name", baby_name)
    labour = await context.labour(labour_id)
    labour.complete(_now(), notes, baby_name)
    context.usage.notify(labour, baby_name or "")
    return labour


async def push(context: CommandContext, labour_id: UUID) -> Labour:
    labour = await context.labour(labour_id)
    labour.push(_now())
    return labour


async def start_contraction(context: CommandContext, labour_id: UUID, started_at: datetime | None) -> Contraction:
    labour, now = await context.labour(labour_id), _now()
    begins = labour.phase is Phase.PLANNED
    contraction = labour.start_contraction(started_at or now, now)
    if begins:
        context.usage.notify(labour)
    return contraction


async def end_contraction(
    context: CommandContext, labour_id: UUID, contraction_id: UUID, ended_at: datetime | None, intensity: int
) -> Contraction:
    labour, now = await context.labour(labour_id), _now()
    return labour.end_contraction(contraction_id, ended_at or now, intensity, now)


async def correct_contraction(
    context: CommandContext,
    labour_id: UUID,
    contraction_id: UUID,
    started_at: datetime | None,
    ended_at: datetime | None,
    intensity: int | None,
) -> Contraction:
    labour = await context.labour(labour_id)
    return labour.correct_contraction(
        contraction_id, _now(), started_at=started_at, ended_at=ended_at, intensity=intensity
    )


async def delete_contraction(context: CommandContext, labour_id: UUID, contraction_id: UUID) -> None:
    (await context.labour(labour_id)).delete_contraction(contraction_id, _now())


async def post_update(context: CommandContext, labour_id: UUID, *, kind: UpdateKind, text: str) -> Update:
    if kind is not UpdateKind.PRIVATE:
        _check_text("text", text)
    labour = await context.labour(labour_id)
    update = labour.post(kind, text, _now())
    await context.labours.add_update(update)
    if kind is UpdateKind.ANNOUNCEMENT:
        context.usage.announce(labour, text)
    return update


async def delete_update(context: CommandContext, labour_id: UUID, update_id: UUID) -> None:
    labour = await context.labour(labour_id)
    update = await context.labours.get_update(labour_id, update_id)
    if update is None:
        raise NoSuchUpdate(labour_id, update_id)
    labour.remove_update(update, _now())
    await context.labours.delete_update(update)


async def invite(context: CommandContext, labour_id: UUID, token: str, valid_for: timedelta) -> Invite:
    labour, now = await context.labour(labour_id), _now()
    return labour.invite(token=token, expires_at=now + valid_for, at=now)


async def revoke_invite(context: CommandContext, labour_id: UUID, invite_id: UUID) -> None:
    (await context.labour(labour_id)).revoke_invite(invite_id, _now())


async def request_subscription(
    context: CommandContext, token: str, name: str, phone: str, channel: Channel
) -> tuple[Labour, Subscriber]:
    _check_name("name", name)
    number = to_e164(phone, context.allowances.countries)
    labour = await context.labours.of_invite(token)
    if labour is None:
        raise InviteInvalid
    requested = labour.request(token=token, user_id=context.caller, name=name, phone=number, channel=channel, at=_now())
    return labour, requested


async def leave(context: CommandContext, subscriber_id: UUID) -> tuple[Labour, Subscriber]:
    """Only the subscriber may."""
    labour = await context.labours.of_subscription(subscriber_id, context.caller)
    if labour is None:
        raise NotSubscribed(None, subscriber_id)
    return labour, labour.leave(subscriber_id, _now())


async def subscribe(context: CommandContext, labour_id: UUID, *, name: str, phone: str) -> Subscriber:
    _check_name("name", name)
    number = to_e164(phone, context.allowances.countries)
    added = (await context.labour(labour_id)).subscribe(name=name, phone=number, at=_now())
    context.usage.add_person()
    return added


async def approve(context: CommandContext, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    approved = (await context.labour(labour_id)).approve(subscriber_id, _now())
    to_e164(approved.phone, context.allowances.countries)  # the list may be shorter than when the person asked
    context.usage.add_person()
    return approved


async def unsubscribe(context: CommandContext, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await context.labour(labour_id)).unsubscribe(subscriber_id, _now())


async def block(context: CommandContext, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await context.labour(labour_id)).block(subscriber_id, _now())


async def unblock(context: CommandContext, labour_id: UUID, subscriber_id: UUID) -> Subscriber:
    return (await context.labour(labour_id)).unblock(subscriber_id, _now())


async def change_role(context: CommandContext, labour_id: UUID, subscriber_id: UUID, role: Role) -> Subscriber:
    return (await context.labour(labour_id)).change_role(subscriber_id, role, _now())


def _check_text(field: str, text: str) -> None:
    """Raises `TextNotAllowed`. Only for texts that other people read: private notes and the notes of a birth are not checked."""
    if problem := problem_for_readers(text):
        raise TextNotAllowed(field, problem)


def _check_name(field: str, name: str) -> None:
    if problem := problem_with_name(name):
        raise TextNotAllowed(field, problem)


def _now() -> datetime:
    return clock.now()
