"""The part of the REST API about other people: invites, requests, and who is on the roster."""

import secrets
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody
from msgspec import Meta

from labour.application import commands, queries
from labour.application.command_runner import Once
from labour.application.views import InviteView, NewInviteView, SubscriberView, SubscriptionView, show
from labour.domain.subscriber import Channel, Role, Subscriber
from labour.http.auth import Caller
from labour.http.labours import PersonName
from labour.storage import Labours
from messaging.unit_of_work import UnitsOfWork
from servicekit.web import Items

Phone = Annotated[str, Meta(min_length=1, max_length=40, description="With country code", examples=["+12025550123"])]


class CreateInvite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    valid_hours: Annotated[int, Meta(ge=1, le=24 * 30)] = 72


class Subscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: PersonName
    phone: Phone


class RequestSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[str, Meta(min_length=20, max_length=200, description="Of an invite")]
    name: PersonName
    phone: Phone
    channel: Channel = Channel.SMS


class ChangeRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    role: Role


class PeopleController(Controller):
    """For the mother."""

    path = "/api/v1/labours/{labour_id:uuid}"
    tags = ("people",)

    @post("/invites", summary="A new invite; its token is shown this once")
    async def invite(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[CreateInvite]
    ) -> Response[NewInviteView]:
        token, valid_for = secrets.token_urlsafe(32), timedelta(hours=data.valid_hours)
        return await once(
            lambda labours: commands.invite(labours, labour_id, token=token, valid_for=valid_for),
            lambda invite: NewInviteView(invite.id, token, invite.expires_at),
            status=201,
        )

    @get("/invites", summary="All invites, without their tokens")
    async def list_invites(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller], labour_id: FromPath[UUID]
    ) -> Items[InviteView]:
        async with units_of_work() as uow:
            return Items(await queries.list_invites(uow.session, labour_id, caller.id))

    @delete("/invites/{invite_id:uuid}", status_code=204, summary="Nobody can use this invite any more")
    async def revoke_invite(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], invite_id: FromPath[UUID]
    ) -> Response[None]:
        return await once(
            lambda labours: commands.revoke_invite(labours, labour_id, invite_id), lambda _: None, status=204
        )

    @post("/subscribers", summary="Put somebody on the list; they need no invite and no account")
    async def subscribe(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], data: JSONBody[Subscribe]
    ) -> Response[SubscriberView]:
        return await once(
            lambda labours: commands.subscribe(labours, labour_id, name=data.name.strip(), phone=data.phone),
            _shown,
            status=201,
        )

    @delete("/subscribers/{subscriber_id:uuid}", status_code=204, summary="Somebody is no longer to be told")
    async def unsubscribe(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> Response[None]:
        return await once(
            lambda labours: commands.unsubscribe(labours, labour_id, subscriber_id), lambda _: None, status=204
        )

    @put("/subscribers/{subscriber_id:uuid}/approve", summary="Somebody who asked is to be told")
    async def approve(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> Response[SubscriberView]:
        return await once(_decision(commands.approve, labour_id, subscriber_id), _shown)

    @put("/subscribers/{subscriber_id:uuid}/block", summary="Somebody is not to be told, and cannot ask again")
    async def block(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> Response[SubscriberView]:
        return await once(_decision(commands.block, labour_id, subscriber_id), _shown)

    @put("/subscribers/{subscriber_id:uuid}/unblock", summary="Somebody may ask again")
    async def unblock(
        self, once: NamedDependency[Once], labour_id: FromPath[UUID], subscriber_id: FromPath[UUID]
    ) -> Response[SubscriberView]:
        return await once(_decision(commands.unblock, labour_id, subscriber_id), _shown)

    @put("/subscribers/{subscriber_id:uuid}/role", summary="What somebody may see: a birth partner sees contractions")
    async def change_role(
        self,
        once: NamedDependency[Once],
        labour_id: FromPath[UUID],
        subscriber_id: FromPath[UUID],
        data: JSONBody[ChangeRole],
    ) -> Response[SubscriberView]:
        return await once(lambda labours: commands.change_role(labours, labour_id, subscriber_id, data.role), _shown)


class SubscriptionController(Controller):
    """For the person themselves."""

    path = "/api/v1/subscriptions"
    tags = ("subscriptions",)

    @post(summary="Ask to be told, with an invite; the mother decides")
    async def request(
        self, once: NamedDependency[Once], data: JSONBody[RequestSubscription]
    ) -> Response[SubscriptionView]:
        return await once(
            lambda labours: commands.request_subscription(
                labours, token=data.token, name=data.name.strip(), phone=data.phone, channel=data.channel
            ),
            SubscriptionView.of,
            status=201,
        )

    @get(summary="What the caller asked for, or is told about")
    async def list_subscriptions(
        self, units_of_work: NamedDependency[UnitsOfWork], caller: NamedDependency[Caller]
    ) -> Items[SubscriptionView]:
        async with units_of_work() as uow:
            return Items(await queries.list_subscriptions(uow.session, caller.id))

    @put("/{subscriber_id:uuid}/leave", summary="No longer be told, or no longer ask")
    async def leave(self, once: NamedDependency[Once], subscriber_id: FromPath[UUID]) -> Response[SubscriptionView]:
        return await once(lambda labours: commands.leave(labours, subscriber_id), SubscriptionView.of)


def _shown(subscriber: Subscriber) -> SubscriberView:
    return show(SubscriberView, subscriber)


def _decision(
    command: Callable[[Labours, UUID, UUID], Awaitable[Subscriber]], labour_id: UUID, subscriber_id: UUID
) -> Callable[[Labours], Awaitable[Subscriber]]:
    return lambda labours: command(labours, labour_id, subscriber_id)
