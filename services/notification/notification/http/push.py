"""Push delivery: Pub/Sub sends a message over HTTP, and the status acknowledges it. Disabled unless PUSH_AUDIENCE is set."""

import base64
import binascii
from functools import partial
from typing import Any

import jwt
import msgspec
from litestar import Controller, Request, post
from litestar.connection import ASGIConnection
from litestar.di import NamedDependency
from litestar.handlers import BaseRouteHandler
from litestar.params import JSONBody
from litestar.types import Guard

from contracts.events import Event
from messaging.bus import Message
from messaging.consumer import Consumer, Verdict
from notification.settings import ApiSettings
from servicekit.http.problems import Problem
from servicekit.http.signing_keys import ALGORITHM, KeysUnavailable, SigningKeys


class PushedMessage(msgspec.Struct, rename="camel"):
    message_id: str
    data: str = ""
    attributes: dict[str, str] = {}


class Push(msgspec.Struct, rename="camel"):
    message: PushedMessage
    subscription: str
    delivery_attempt: int = 0


def pubsub_only(settings: ApiSettings) -> Guard:
    """A guard that accepts only the OIDC tokens of our push subscriptions. It runs before the body is read.

    Any Google account can get a token for any audience, so the audience alone proves nothing: the token must be issued by
    Google, for the service account of our subscriptions.
    """
    keys = SigningKeys(settings.push_jwks_url)
    claims_of = partial(
        jwt.decode,
        algorithms=[ALGORITHM],
        audience=settings.push_audience,
        issuer=settings.push_issuers,
        options={"require": ["exp", "iss", "aud", "email"]},
    )

    async def guard(connection: ASGIConnection[Any, Any, Any, Any], _: BaseRouteHandler) -> None:
        if not settings.push_audience:
            raise Problem(404, "not-found", "Push is disabled here: set PUSH_AUDIENCE to enable it.")
        scheme, token = connection.headers.get("authorization", "").partition(" ")[::2]
        try:
            if scheme.lower() != "bearer":
                raise jwt.InvalidTokenError("no bearer token")
            claims = claims_of(token, (await keys.key(token)).key)
        except KeysUnavailable:
            detail = "The keys of push tokens cannot be fetched now; try again."
            raise Problem(503, "unavailable", detail, {"Retry-After": "1"}) from None
        except jwt.PyJWTError as error:
            detail = f"The push token is invalid: {type(error).__name__}."
            raise Problem(401, "not-authorized", detail, {"WWW-Authenticate": 'Bearer realm="fernlabour"'}) from None
        if claims["email"] != settings.push_service_account or claims.get("email_verified") is not True:
            raise Problem(403, "forbidden", "The push token belongs to another service account.")

    return guard


class PushController(Controller):
    """Pub/Sub acknowledges the message on status 204. On any other status it delivers the message again later."""

    path = "/pubsub/push"
    tags = ("push",)
    request_class = Request  # the consumer judges the message, and dead-letters a bad one with its reason

    @post(
        operation_id="receive_push",
        status_code=204,
        summary="Handle a message of a push subscription.",
        refuses={403: "forbidden", 404: "not-found", 503: "try-again"},
    )
    async def receive(
        self,
        data: JSONBody[Push],
        push_subscriptions: NamedDependency[frozenset[str]],
        push_consumer: NamedDependency[Consumer[Event]],
    ) -> None:
        """Only Pub/Sub may, with a token of the service account of our subscriptions. The effect of an event happens once,
        however often it is delivered. Disabled unless `PUSH_AUDIENCE` is set: the answer is 404.
        """
        if data.subscription not in push_subscriptions:
            raise Problem(403, "forbidden", "This is no subscription of the Notification service: see topology.toml.")
        try:
            body = base64.b64decode(data.message.data, validate=True)
        except binascii.Error:
            raise Problem(
                400, "invalid-request", "message.data is not base64: send the message as Pub/Sub encodes it."
            ) from None
        message = Message(
            subscription=data.subscription.rpartition("/")[2],
            ack_id=data.message.message_id,
            message_id=data.message.message_id,
            data=body,
            attributes=data.message.attributes,
            delivery_attempt=data.delivery_attempt,
        )
        [verdict] = await push_consumer.handle([message])
        if verdict is Verdict.NACK:
            raise Problem(
                503, "try-again", "The event cannot be handled now; deliver it again later.", {"Retry-After": "1"}
            )
