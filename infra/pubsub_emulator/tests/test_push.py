"""Push subscriptions: the endpoint's answer is the ack, and the token can be verified."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import jwt
import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import PushConfig, Subscription
from grpc import StatusCode

from pubsub_emulator.faults import Fault
from pubsub_emulator.http_port import read_body, serving
from pubsub_emulator.server import Running, running

from .parts import Bus, StreamingPull, connected, refusal, texts, until


class Endpoint:
    """Answers with the statuses it is given, in turn, and then with 204."""

    def __init__(self, *statuses: int) -> None:
        self.statuses = list(statuses)
        self.bodies: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.url = ""

    @property
    def texts(self) -> list[str]:
        return [base64.b64decode(body["message"]["data"]).decode() for body in self.bodies]

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        self.bodies.append(json.loads(await read_body(receive, 1_000_000)))
        self.headers.append({key.decode(): value.decode() for key, value in scope["headers"]})
        status = self.statuses.pop(0) if self.statuses else 204
        await send({"type": "http.response.start", "status": status, "headers": []})
        await send({"type": "http.response.body", "body": b""})


@asynccontextmanager
async def receiving(*statuses: int) -> AsyncIterator[Endpoint]:
    endpoint = Endpoint(*statuses)
    async with serving(endpoint, "127.0.0.1") as port:
        endpoint.url = f"http://127.0.0.1:{port}/push"
        yield endpoint


async def test_a_message_is_posted_as_the_service_posts_it(ours: Bus) -> None:
    async with receiving() as endpoint:
        topic, subscription = await ours.pair(push_config=PushConfig(push_endpoint=endpoint.url))

        (message_id,) = await ours.publish(topic, "hello", attributes={"type": "labour.begun"})
        await until(lambda: bool(endpoint.bodies))

    (body,) = endpoint.bodies
    published = body["message"].pop("publishTime")
    assert published == body["message"].pop("publish_time")
    assert body == {
        "message": {
            "data": base64.b64encode(b"hello").decode(),
            "attributes": {"type": "labour.begun"},
            "messageId": message_id,
            "message_id": message_id,
        },
        "subscription": subscription,
    }
    assert "authorization" not in endpoint.headers[0]


async def test_a_failure_is_tried_again_and_any_documented_success_is_an_ack(ours: Bus, emulator: Running) -> None:
    async with receiving(500, 404, 202, 201) as endpoint:
        topic, subscription = await ours.pair(push_config=PushConfig(push_endpoint=endpoint.url))

        await ours.publish(topic, "stubborn")
        await until(lambda: not emulator.broker.catalog.subscriptions[subscription].unacked)
        await ours.publish(topic, "easy")
        await until(lambda: not emulator.broker.catalog.subscriptions[subscription].unacked)

    assert endpoint.texts == ["stubborn"] * 3 + ["easy"]


@pytest.mark.system
async def test_the_token_is_verified_with_the_emulators_own_keys(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    oidc = PushConfig.OidcToken(service_account_email="push@contract.iam", audience="https://fern.example/push")
    keys = []
    async with receiving() as endpoint:
        for issuer in (None, "http://pubsub:8405"):  # the key survives a restart, and another issuer
            async with running(tmp_path, issuer=issuer) as emulator, connected(emulator.target, monkeypatch) as bus:
                endpoint.bodies.clear()
                topic, _ = await bus.pair(push_config=PushConfig(push_endpoint=endpoint.url, oidc_token=oidc))
                await bus.publish(topic, "signed")
                await until(lambda: bool(endpoint.bodies))
                keys.append(await asyncio.to_thread(_verified, emulator.http_url, issuer, endpoint.headers[-1]))

    assert keys[0] == keys[1]


def _verified(url: str, issuer: str | None, headers: dict[str, str]) -> str:
    token = headers["authorization"].removeprefix("Bearer ")
    key = jwt.PyJWKClient(f"{url}/oauth2/v3/certs").get_signing_key_from_jwt(token)
    claims = jwt.decode(token, key, algorithms=["RS256"], audience="https://fern.example/push", issuer=issuer or url)
    assert claims["email"] == "push@contract.iam"
    assert claims["email_verified"] is True
    with pytest.raises(jwt.InvalidAudienceError):
        jwt.decode(token, key, algorithms=["RS256"], audience="https://elsewhere.example")
    assert key.key_id
    return key.key_id


async def test_a_key_is_pushed_in_order_and_replayed_after_a_failure(ours: Bus) -> None:
    retry = {"minimum_backoff": Duration(nanos=100_000_000), "maximum_backoff": Duration(nanos=100_000_000)}
    async with receiving(204, 500) as endpoint:
        config = PushConfig(push_endpoint=endpoint.url)
        topic, _ = await ours.pair(push_config=config, enable_message_ordering=True, retry_policy=retry)

        await ours.publish(topic, "1", "2", "3", ordering_key="ada")
        await until(lambda: endpoint.texts[-1:] == ["3"])

    assert endpoint.texts == ["1", "2", "2", "3"]
    assert {body["message"]["orderingKey"] for body in endpoint.bodies} == {"ada"}


async def test_a_pushed_subscription_is_not_pulled_until_it_is_changed_back(ours: Bus) -> None:
    topic = await ours.topic()
    subscription = await ours.subscription(topic, push_config=PushConfig(push_endpoint="http://127.0.0.1:9/closed"))
    await ours.publish(topic, "unreachable")
    pulled = await refusal(ours.subscriber.pull(subscription=subscription, max_messages=1, retry=None))

    mask = FieldMask(paths=["push_config"])
    await ours.subscriber.update_subscription(subscription=Subscription(name=subscription), update_mask=mask)

    assert pulled is StatusCode.FAILED_PRECONDITION
    assert texts(await ours.pull(subscription)) == ["unreachable"]


async def test_the_fault_duplicate_pushes_a_message_twice(ours: Bus, emulator: Running) -> None:
    await emulator.broker.set_faults({"duplicate": Fault()})
    async with receiving() as endpoint:
        topic, _ = await ours.pair(push_config=PushConfig(push_endpoint=endpoint.url))

        (message_id,) = await ours.publish(topic, "hello")
        await until(lambda: len(endpoint.bodies) >= 2)

    assert [body["message"]["messageId"] for body in endpoint.bodies] == [message_id] * 2


async def test_a_stream_ends_when_its_subscription_becomes_pushed_and_its_messages_are_pushed(ours: Bus) -> None:
    topic, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription)
    await ours.publish(topic, "streamed")
    (streamed,) = await stream.receive(1)

    async with receiving() as endpoint:
        config = PushConfig(push_endpoint=endpoint.url)
        await ours.subscriber.modify_push_config(subscription=subscription, push_config=config)
        ended = await refusal(stream.end())
        await ours.nack(subscription, streamed)
        await ours.publish(topic, "pushed")
        await until(lambda: len(endpoint.texts) >= 2)

    assert ended is StatusCode.FAILED_PRECONDITION
    assert sorted(endpoint.texts) == ["pushed", "streamed"]


async def test_push_and_exactly_once_do_not_go_together(ours: Bus) -> None:
    topic = await ours.topic()

    both = ours.subscribe(topic, push_config=PushConfig(push_endpoint="http://x"), enable_exactly_once_delivery=True)

    assert await refusal(both) is StatusCode.INVALID_ARGUMENT
