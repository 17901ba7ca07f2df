"""REST routes for invites, subscribers (for the mother) and subscriptions (for the subscriber)."""

import secrets
from datetime import timedelta
from typing import Annotated

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.params import JSONBody
from msgspec import Meta

from labour.application import commands, queries
from labour.application.views import InviteView, NewInviteView, SubscriberView, SubscriptionView, show
from labour.domain.subscriber import Channel, Role
from labour.http.labours import PersonName
from labour.http.responses import Id, Read, Run, no_content
from servicekit.text import LINE
from servicekit.web import Items

Phone = Annotated[
    str, Meta(min_length=1, max_length=40, pattern=LINE, description="With country code", examples=["+12025550123"])
]
VIEW = show(SubscriberView)


class CreateInvite(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    valid_hours: Annotated[int, Meta(ge=1, le=24 * 30)] = 72


class Subscribe(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    name: PersonName
    phone: Phone


class RequestSubscription(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    token: Annotated[str, Meta(min_length=20, max_length=200, pattern=LINE, description="Of an invite")]
    name: PersonName
    phone: Phone
    channel: Channel = Channel.SMS


class ChangeRole(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A birth partner also reads contractions and advice."""

    role: Role


class SubscriberController(Controller):
    """Only the mother may use these routes."""

    path = "/api/v1/labours/{labour_id:uuid}"
    tags = ("people",)

    @post("/invites", summary="Create an invite. Its token is returned only here. Only the mother may.")
    async def invite(self, run: Run, labour_id: Id, data: JSONBody[CreateInvite]) -> Response[NewInviteView]:
        token, valid_for = secrets.token_urlsafe(32), timedelta(hours=data.valid_hours)
        return await run(
            commands.invite, lambda one: NewInviteView(one.id, token, one.expires_at), labour_id, token, valid_for
        )

    @get("/invites", summary="List all invites, without their tokens. Only the mother may.")
    async def list_invites(self, read: Read, labour_id: Id) -> Items[InviteView]:
        return Items(await read(queries.list_invites, labour_id))

    @delete("/invites/{invite_id:uuid}", summary="Revoke an invite. Only the mother may.")
    async def revoke_invite(self, run: Run, labour_id: Id, invite_id: Id) -> Response[None]:
        return await run(commands.revoke_invite, no_content, labour_id, invite_id)

    @post("/subscribers", summary="Add a subscriber, who needs no invite and no account. Only the mother may.")
    async def subscribe(self, run: Run, labour_id: Id, data: JSONBody[Subscribe]) -> Response[SubscriberView]:
        return await run(commands.subscribe, VIEW, labour_id, name=data.name.strip(), phone=data.phone)

    @delete("/subscribers/{subscriber_id:uuid}", summary="Remove a subscriber. Only the mother may.")
    async def unsubscribe(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[None]:
        return await run(commands.unsubscribe, no_content, labour_id, subscriber_id)

    @put("/subscribers/{subscriber_id:uuid}/approve", summary="Approve a request to subscribe. Only the mother may.")
    async def approve(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        return await run(commands.approve, VIEW, labour_id, subscriber_id)

    @put("/subscribers/{subscriber_id:uuid}/block", summary="Block a person from subscribing. Only the mother may.")
    async def block(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        return await run(commands.block, VIEW, labour_id, subscriber_id)

    @put("/subscribers/{subscriber_id:uuid}/unblock", summary="Unblock a person. Only the mother may.")
    async def unblock(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        return await run(commands.unblock, VIEW, labour_id, subscriber_id)

    @put("/subscribers/{subscriber_id:uuid}/role", summary="Change a subscriber's role. Only the mother may.")
    async def change_role(
        self, run: Run, labour_id: Id, subscriber_id: Id, data: JSONBody[ChangeRole]
    ) -> Response[SubscriberView]:
        return await run(commands.change_role, VIEW, labour_id, subscriber_id, data.role)


class SubscriptionController(Controller):
    """For the subscriber."""

    path = "/api/v1/subscriptions"
    tags = ("subscriptions",)

    @post(summary="Request a subscription with the token of an invite. The mother approves it.")
    async def request(self, run: Run, data: JSONBody[RequestSubscription]) -> Response[SubscriptionView]:
        asking = (data.token, data.name.strip(), data.phone, data.channel)
        return await run(commands.request_subscription, SubscriptionView.of, *asking)

    @get(summary="List the caller's own subscriptions and requests.")
    async def list_subscriptions(self, read: Read) -> Items[SubscriptionView]:
        return Items(await read(queries.list_subscriptions))

    @put("/{subscriber_id:uuid}/leave", summary="End the caller's own subscription or withdraw the request.")
    async def leave(self, run: Run, subscriber_id: Id) -> Response[SubscriptionView]:
        return await run(commands.leave, SubscriptionView.of, subscriber_id)
