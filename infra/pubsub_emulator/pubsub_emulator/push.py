"""Push subscriptions: each message is an HTTP POST, and the answer is the ack or the nack.

Where the subscription asks for a token, it is signed like the service's own, but with the emulator's key, which the HTTP port
publishes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import logging
import time
from functools import cached_property
from itertools import groupby
from typing import TYPE_CHECKING, Any, Final

from pubsub_emulator import sql
from pubsub_emulator.broker import Broker
from pubsub_emulator.errors import CallRefused
from pubsub_emulator.leases import Consumer, Handed
from pubsub_emulator.message import Delivery
from pubsub_emulator.store import Store
from pubsub_emulator.subscription import Subscription
from pubsub_emulator.wire import PubsubMessage

if TYPE_CHECKING:
    import httpx

log = logging.getLogger(__name__)

_SUCCESS: Final = frozenset({102, 200, 201, 202, 204})
_IN_FLIGHT: Final = 32
"""Requests to one endpoint at a time."""
_LIFETIME_SECONDS: Final = 3600
_SECRET: Final = "push-key"  # noqa: S105 (a name)


class Pushers:
    """One pusher for each subscription that has an endpoint."""

    def __init__(self, broker: Broker, signer: Signer) -> None:
        self._broker: Final = broker
        self._signer: Final = signer
        self._running: dict[Subscription, asyncio.Task[None]] = {}
        broker.catalog.on_change = self.refresh
        for subscription in broker.catalog.subscriptions.values():
            self.refresh(subscription)

    def refresh(self, subscription: Subscription) -> None:
        """Start, restart or stop the pusher of a subscription that was created, changed or deleted."""
        if task := self._running.pop(subscription, None):
            task.cancel()
        exists = self._broker.catalog.subscriptions.get(subscription.name) is subscription
        if exists and subscription.config.push_config.push_endpoint and not subscription.config.detached:
            self._running[subscription] = asyncio.create_task(_Pusher(self._broker, self._signer, subscription).run())

    async def stop(self) -> None:
        for task in self._running.values():
            task.cancel()
        await asyncio.gather(*self._running.values(), return_exceptions=True)


class _Pusher:
    def __init__(self, broker: Broker, signer: Signer, subscription: Subscription) -> None:
        self._broker: Final = broker
        self._signer: Final = signer
        self._subscription: Final = subscription

    async def run(self) -> None:
        import httpx  # here, because it is slow to import and few subscriptions push

        subscription = self._subscription
        deadline = subscription.config.ack_deadline_seconds
        consumer = Consumer(deadline, max_messages=_IN_FLIGHT)
        subscription.join(consumer)
        try:
            async with httpx.AsyncClient(timeout=deadline) as client, asyncio.TaskGroup() as group:
                while True:
                    batch = await consumer.next_batch()
                    consumer.busy = False
                    for lane, handed in groupby(batch, key=lambda one: one[1].lane):
                        # Messages of a key one after the other, all others side by side.
                        for row in [list(handed)] if lane else [[one] for one in handed]:
                            group.create_task(self._push_in_order(client, row))
                    subscription.dispatch()
        except CallRefused:
            pass  # the subscription is gone
        finally:
            subscription.leave(consumer)

    async def _push_in_order(self, client: httpx.AsyncClient, row: list[Handed]) -> None:
        for ack_id, delivery in row:
            if delivery.lane and delivery.ack_id != ack_id:
                return  # an earlier message of the key failed, so this one is replayed too
            if await self._push(client, self._body(delivery)):
                self._broker.acknowledge(self._subscription, [ack_id])
            else:
                self._subscription.modify_deadline([ack_id], 0)

    async def _push(self, client: httpx.AsyncClient, body: dict[str, Any]) -> bool:
        import httpx

        config = self._subscription.config.push_config
        headers = {}
        if config.HasField("oidc_token"):
            audience = config.oidc_token.audience or config.push_endpoint
            token = self._signer.token(config.oidc_token.service_account_email, audience)
            headers["Authorization"] = f"Bearer {token}"
        try:
            response = await client.post(config.push_endpoint, json=body, headers=headers)
        except httpx.HTTPError as error:
            log.info("push failed", extra={"subscription": self._subscription.name, "error": repr(error)[:200]})
            return False
        if response.status_code not in _SUCCESS:
            log.info("push refused", extra={"subscription": self._subscription.name, "status": response.status_code})
        return response.status_code in _SUCCESS

    def _body(self, delivery: Delivery) -> dict[str, Any]:
        raw = PubsubMessage()
        delivery.message.copy_to(raw)
        published = raw.publish_time.ToJsonString()
        message: dict[str, Any] = {
            "data": base64.b64encode(raw.data).decode(),
            "attributes": dict(raw.attributes),
            # The service sends both spellings.
            "messageId": raw.message_id,
            "message_id": raw.message_id,
            "publishTime": published,
            "publish_time": published,
        }
        if raw.ordering_key:
            message["orderingKey"] = raw.ordering_key
        body: dict[str, Any] = {"message": message, "subscription": self._subscription.name}
        if self._subscription.config.HasField("dead_letter_policy"):
            body["deliveryAttempt"] = delivery.failures + 1
        return body


class Signer:
    def __init__(self, store: Store) -> None:
        """The key is generated when it is first needed and stored, so that receivers may cache the public key across restarts."""
        self.issuer = ""
        """The URL of the HTTP port, known once that is bound, or the URL that was given for it."""
        self._store: Final = store
        self._stored: Final = [value for name, value in store.rows("SELECT name, value FROM secret") if name == _SECRET]

    def token(self, email: str, audience: str) -> str:
        import jwt

        now = int(time.time())
        claims = {
            "iss": self.issuer,
            "aud": audience,
            "azp": email,
            "sub": email,
            "email": email,
            "email_verified": True,
            "iat": now,
            "exp": now + _LIFETIME_SECONDS,
        }
        return jwt.encode(claims, self._key, "RS256", {"kid": self._jwk["kid"]})

    def discovery(self) -> dict[str, Any]:
        """The provider configuration of OpenID Connect."""
        return {
            "issuer": self.issuer,
            "jwks_uri": f"{self.issuer}/oauth2/v3/certs",
            "id_token_signing_alg_values_supported": ["RS256"],
        }

    def jwks(self) -> dict[str, Any]:
        return {"keys": [self._jwk]}

    # Imported here, because cryptography takes as long to import as the rest takes to start, and few subscriptions push.
    @cached_property
    def _key(self) -> Any:
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import rsa

        if self._stored:
            return serialization.load_pem_private_key(self._stored[0], password=None)
        key = rsa.generate_private_key(65537, 2048)
        pem_format = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        pem = key.private_bytes(*pem_format, serialization.NoEncryption())
        self._store.submit(sql.put_secret(_SECRET, pem))
        return key

    @cached_property
    def _jwk(self) -> dict[str, Any]:
        from hashlib import sha256

        from jwt.algorithms import RSAAlgorithm

        public: dict[str, Any] = json.loads(RSAAlgorithm.to_jwk(self._key.public_key()))
        kid = sha256(public["n"].encode()).hexdigest()[:40]
        return {"kty": "RSA", "n": public["n"], "e": public["e"], "use": "sig", "alg": "RS256", "kid": kid}
