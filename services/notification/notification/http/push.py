"""Push delivery: Pub/Sub sends a message over HTTP, and the status is the verdict. Disabled unless PUSH_AUDIENCE is set."""

import asyncio
import base64
import binascii
from typing import Any

import jwt
import msgspec
from litestar import Controller, Request, post
from litestar.di import NamedDependency
from litestar.params import JSONBody

from contracts.events import Event
from messaging.bus import Message
from messaging.consumer import Consumer, Verdict
from notification.settings import Settings
from servicekit.problems import Problem


class PushedMessage(msgspec.Struct, rename="camel"):
    message_id: str
    data: str = ""
    attributes: dict[str, str] = {}


class Push(msgspec.Struct, rename="camel"):
    message: PushedMessage
    subscription: str
    delivery_attempt: int = 0


class PushVerifier:
    """Verifies the OIDC token of a push request. Keys are fetched once and cached; an unknown key id fetches them again."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._keys = jwt.PyJWKClient(settings.push_jwks_url, cache_keys=True, timeout=5)

    def check(self, authorization: str) -> None:
        """Raises a Problem unless the token is valid. Blocks while it fetches keys, so call it in a thread."""
        if not self._settings.push_audience:
            raise Problem(404, "not-found", "Push is disabled here: set PUSH_AUDIENCE to enable it.")
        scheme, _, token = authorization.partition(" ")
        try:
            if scheme.lower() != "bearer":
                raise jwt.InvalidTokenError("no bearer token")
            key = self._keys.get_signing_key_from_jwt(token)
            claims = jwt.decode(token, key.key, algorithms=["RS256"], audience=self._settings.push_audience)
        except jwt.PyJWKClientConnectionError:
            raise Problem(503, "unavailable", "The keys of push tokens cannot be fetched now; try again.") from None
        except jwt.PyJWTError as error:
            raise Problem(401, "not-authorized", f"The push token is invalid: {type(error).__name__}.") from None
        expected = self._settings.push_service_account
        if expected and not (claims.get("email") == expected and claims.get("email_verified")):
            raise Problem(403, "forbidden", "The push token belongs to another service account.")


class PushController(Controller):
    """Pub/Sub acknowledges the message on status 204. On any other status it delivers the message again later."""

    path = "/pubsub/push"
    tags = ("push",)
    request_class = Request  # the consumer judges the message, and dead-letters a bad one with its reason

    @post(status_code=204, summary="Handle a message of a push subscription. Only Pub/Sub may.")
    async def receive(
        self,
        request: Request[Any, Any, Any],
        data: JSONBody[Push],
        push_verifier: NamedDependency[PushVerifier],
        push_consumer: NamedDependency[Consumer[Event]],
    ) -> None:
        await asyncio.to_thread(push_verifier.check, request.headers.get("authorization", ""))
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
