"""REST routes for invites, subscribers (for the mother) and subscriptions (for the subscriber)."""

import secrets
from datetime import timedelta
from typing import Annotated
from uuid import UUID

import msgspec
from litestar import Controller, Response, delete, get, post, put
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta

from labour.application import commands, queries
from labour.application.views import InviteView, NewInviteView, SubscriberView, SubscriptionView, show
from labour.domain.invite import INVITE_LIMIT
from labour.domain.subscriber import Channel, Role
from labour.http.labours import PersonName
from labour.http.responses import PAGE_SIZE, After, Id, Read, Run, no_content, page
from servicekit.http.web import Page
from servicekit.text import LINE

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
    token: Annotated[str, Meta(min_length=20, max_length=200, pattern=LINE, description="The token of an invite")]
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

    @post(
        "/invites",
        operation_id="create_invite",
        summary="Create an invite.",
        refuses={409: "labour-already-completed too-many-invites too-many-valid-invites"},
    )
    async def invite(self, run: Run, labour_id: Id, data: JSONBody[CreateInvite]) -> Response[NewInviteView]:
        """Only the mother may. Its token is returned only here: share it with the people who may ask to subscribe."""
        token, valid_for = secrets.token_urlsafe(32), timedelta(hours=data.valid_hours)
        return await run(
            commands.invite, lambda one: NewInviteView(one.id, token, one.expires_at), labour_id, token, valid_for
        )

    @get(
        "/invites",
        operation_id="list_invites",
        summary="List invites, without their tokens.",
        refuses={403: "not-yours"},
    )
    async def list_invites(
        self,
        read: Read,
        labour_id: Id,
        limit: Annotated[int, QueryParameter(ge=1, le=INVITE_LIMIT, description=PAGE_SIZE)] = INVITE_LIMIT,
        after: After = None,
    ) -> Page[InviteView, UUID]:
        """Only the mother may, page by page."""
        return await page(
            lambda number: read(queries.list_invites, labour_id, limit=number, after=after),
            limit,
            lambda last: last.id,
        )

    @delete(
        "/invites/{invite_id:uuid}",
        operation_id="revoke_invite",
        summary="Revoke an invite.",
        refuses={404: "invite-invalid"},
    )
    async def revoke_invite(self, run: Run, labour_id: Id, invite_id: Id) -> Response[None]:
        """Only the mother may. Its token can no longer be used; requests that were made with it stay."""
        return await run(commands.revoke_invite, no_content, labour_id, invite_id)

    @post(
        "/subscribers",
        operation_id="add_subscriber",
        summary="Add a subscriber, who needs no invite and no account.",
        refuses={
            400: "text-not-allowed not-a-phone-number phone-not-supported",
            409: "labour-already-completed already-subscribed roster-full too-many-people",
        },
    )
    async def subscribe(self, run: Run, labour_id: Id, data: JSONBody[Subscribe]) -> Response[SubscriberView]:
        """Only the mother may. The person is notified from then on. Outside local mode one SMS asks a new number whether its
        owner agrees, and nothing else is sent before the answer YES. The person counts towards the people that the account may
        add in a day.
        """
        return await run(commands.subscribe, VIEW, labour_id, name=data.name.strip(), phone=data.phone)

    @delete(
        "/subscribers/{subscriber_id:uuid}",
        operation_id="remove_subscriber",
        summary="Remove a subscriber.",
        refuses={404: "not-subscribed", 409: "not-possible-now"},
    )
    async def unsubscribe(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[None]:
        """Only the mother may, also when the labour is complete. Later events do not notify the person."""
        return await run(commands.unsubscribe, no_content, labour_id, subscriber_id)

    @put(
        "/subscribers/{subscriber_id:uuid}/approve",
        operation_id="approve_subscriber",
        summary="Approve a request to subscribe.",
        refuses={
            400: "phone-not-supported",
            404: "not-subscribed",
            409: "labour-already-completed not-possible-now already-subscribed roster-full",
        },
    )
    async def approve(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        """Only the mother may. The person is notified from then on, as if the mother had added them."""
        return await run(commands.approve, VIEW, labour_id, subscriber_id)

    @put(
        "/subscribers/{subscriber_id:uuid}/block",
        operation_id="block_subscriber",
        summary="Block a person from subscribing.",
        refuses={404: "not-subscribed", 409: "not-possible-now"},
    )
    async def block(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        """Only the mother may. A subscription ends, and the person's account and number cannot ask again. They are not told."""
        return await run(commands.block, VIEW, labour_id, subscriber_id)

    @put(
        "/subscribers/{subscriber_id:uuid}/unblock",
        operation_id="unblock_subscriber",
        summary="Unblock a person.",
        refuses={404: "not-subscribed", 409: "not-possible-now"},
    )
    async def unblock(self, run: Run, labour_id: Id, subscriber_id: Id) -> Response[SubscriberView]:
        """Only the mother may. The person may ask again, and is not subscribed until then."""
        return await run(commands.unblock, VIEW, labour_id, subscriber_id)

    @put(
        "/subscribers/{subscriber_id:uuid}/role",
        operation_id="change_role",
        summary="Change a subscriber's role.",
        refuses={404: "not-subscribed", 409: "not-possible-now"},
    )
    async def change_role(
        self, run: Run, labour_id: Id, subscriber_id: Id, data: JSONBody[ChangeRole]
    ) -> Response[SubscriberView]:
        """Only the mother may. A birth partner also reads contractions, statistics and advice. Sends no SMS."""
        return await run(commands.change_role, VIEW, labour_id, subscriber_id, data.role)


class SubscriptionController(Controller):
    """The routes for a subscriber's own subscriptions."""

    path = "/api/v1/subscriptions"
    tags = ("subscriptions",)

    @post(
        operation_id="request_subscription",
        summary="Request a subscription with the token of an invite.",
        refuses={
            400: "text-not-allowed not-a-phone-number phone-not-supported",
            404: "invite-invalid",
            409: "labour-already-completed already-subscribed too-many-people",
        },
    )
    async def request(self, run: Run, data: JSONBody[RequestSubscription]) -> Response[SubscriptionView]:
        """Any caller with a valid token of an invite may. No SMS is sent before the mother approves the request."""
        asking = (data.token, data.name.strip(), data.phone, data.channel)
        return await run(commands.request_subscription, SubscriptionView.of, *asking)

    @get(operation_id="list_subscriptions", summary="List the caller's own subscriptions and requests.")
    async def list_subscriptions(
        self,
        read: Read,
        limit: Annotated[int, QueryParameter(ge=1, le=1000, description=PAGE_SIZE)] = 100,
        after: After = None,
    ) -> Page[SubscriptionView, UUID]:
        """Any caller may, page by page."""
        return await page(
            lambda number: read(queries.list_subscriptions, limit=number, after=after), limit, lambda last: last.id
        )

    @put(
        "/{subscriber_id:uuid}/leave",
        operation_id="leave_labour",
        summary="End the caller's own subscription, or withdraw the request.",
        refuses={404: "not-subscribed", 409: "not-possible-now"},
    )
    async def leave(self, run: Run, subscriber_id: Id) -> Response[SubscriptionView]:
        """Only the subscriber may, also when the labour is complete. Later events do not notify them."""
        return await run(commands.leave, SubscriptionView.of, subscriber_id)
