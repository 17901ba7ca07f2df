"""Events arrive by pull and by push, in any order and more than once, and the ledger has one message for each person."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import jwt
import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
from google.protobuf.duration_pb2 import Duration
from google.pubsub_v1.types import PushConfig, RetryPolicy, Subscription
from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import Event, InviteRevoked, LabourCompleted, SubscriberAdded, SubscriberRemoved
from contracts.upcasters import newest
from e2e.support.bus import apply_topology, pull_all
from e2e.support.http_server import served
from e2e.support.schema import schema_differences
from e2e.support.waiting import eventually
from messaging.bus import Message, Outgoing
from messaging.consumer import Consumer, Received, Verdict
from messaging.envelope import Envelope, attributes
from messaging.errors import ReactionsFailed
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitsOfWork
from notification.app import build
from notification.application.batch_reaction import react_to_batch
from notification.consumer import create_consumer
from notification.domain.reactions import TOPICS
from notification.storage import metadata
from pubsub_emulator import server as embedded

from .sms_parts import local_settings

NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)
ACK, NACK = Verdict.ACK, Verdict.NACK
ANY_ENVELOPE = Envelope(uuid7(), "labour", "any", 1, "any", NOW, None, b"")


@pytest.fixture
async def bus(bus_host: str, project: str) -> AsyncIterator[PubSub]:
    await apply_topology(project, {topic: ["notification"] for topic in TOPICS})
    bus = PubSub(project)
    yield bus
    await bus.close()


def context(event: Event, event_id: UUID) -> dict[str, str]:
    return attributes(
        id=event_id,
        source="labour",
        type=event.type,
        version=event.version,
        subject=str(event.labour_id),
        time=NOW,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )


def delivery(event: Event, event_id: UUID | None = None) -> Message:
    event_id = event_id or uuid7()
    data = msgspec.json.encode(event)
    return Message(f"notification.{event.type}", str(uuid7()), "1", data, context(event, event_id), 1)


def a_labour(people: int) -> tuple[list[Event], set[UUID]]:
    """The events of a labour, and who is to be told: all people are added, the first is removed, and the labour is completed."""
    labour_id, persons = uuid7(), [uuid7() for _ in range(people)]
    events: list[Event] = [
        SubscriberAdded(
            labour_id=labour_id, roster_version=n + 1, person_id=person, name=f"Person {n}", phone=f"+120255501{n:02}"
        )
        for n, person in enumerate(persons)
    ]
    events.append(SubscriberRemoved(labour_id=labour_id, roster_version=people + 1, person_id=persons[0]))
    events.append(LabourCompleted(labour_id=labour_id, roster_version=people + 1, mother_name="Ada", completed_at=NOW))
    return events, set(persons[1:])


async def told(engine: AsyncEngine) -> list[UUID]:
    async with engine.connect() as connection:
        return list((await connection.execute(text("SELECT person_id FROM notification"))).scalars())


async def deliver_until_acked(consumer: Consumer[Event], messages: Sequence[Message], shuffled: random.Random) -> None:
    """Deliver as the bus does: in any order, in batches of any size, and again if a message was not acknowledged."""
    waiting = list(messages)
    for _ in range(10_000):
        if not waiting:
            return
        shuffled.shuffle(waiting)
        size = shuffled.randint(1, 8)
        batch, waiting = waiting[:size], waiting[size:]
        verdicts = await consumer.handle(batch)
        waiting += [message for message, verdict in zip(batch, verdicts, strict=True) if verdict is NACK]
    raise AssertionError(f"{len(waiting)} messages were never acknowledged")


@pytest.mark.parametrize("seed", range(4))
async def test_in_any_order_to_several_consumers_with_duplicates_everyone_is_told_once(
    notification_engine: AsyncEngine, notification_units: UnitsOfWork, bus: PubSub, seed: int
) -> None:
    labours = [a_labour(people) for people in (1, 2, 5)]
    messages = [delivery(event) for events, _ in labours for event in events]
    consumers = [create_consumer(notification_units, bus, lambda: None) for _ in range(3)]

    await asyncio.gather(
        *(
            deliver_until_acked(consumer, messages, random.Random(seed * 10 + number))
            for number, consumer in enumerate(consumers)
        )
    )

    assert sorted(await told(notification_engine)) == sorted(person for _, people in labours for person in people)


async def test_an_event_ahead_of_its_roster_waits_until_the_roster_is_complete(
    notification_engine: AsyncEngine, notification_units: UnitsOfWork, bus: PubSub
) -> None:
    (first, second, leaving, complete), expected = a_labour(2)
    consumer = create_consumer(notification_units, bus, lambda: None)
    waiting = delivery(complete)

    assert await consumer.handle([waiting]) == [NACK]
    assert await consumer.handle([delivery(second)]) == [NACK]
    assert await consumer.handle([delivery(first), waiting]) == [ACK, NACK]
    assert await consumer.handle([delivery(second), delivery(leaving), waiting]) == [ACK, ACK, ACK]

    assert set(await told(notification_engine)) == expected


async def test_every_event_without_a_reaction_is_named_before_anything_is_written(
    notification_engine: AsyncEngine, notification_units: UnitsOfWork
) -> None:
    events, _ = a_labour(2)
    labour_id = events[0].labour_id
    events += [InviteRevoked(labour_id=labour_id, invite_id=uuid7()) for _ in range(2)]
    batch = [Received(uuid7(), ANY_ENVELOPE, newest(event)) for event in events]

    with pytest.raises(ReactionsFailed) as failed:
        async with notification_units() as uow:
            await react_to_batch(uow, batch, wake_dispatcher=lambda: None)

    assert set(failed.value.errors) == {received.id for received in batch[-2:]}
    assert await told(notification_engine) == []


async def test_an_event_in_structured_mode_has_its_effect_and_is_the_same_event_as_in_binary_mode(
    notification_units: UnitsOfWork, notification_engine: AsyncEngine, bus: PubSub
) -> None:
    (*roster_changes, complete), interested = a_labour(2)
    binary = delivery(complete)
    named = {name.removeprefix("ce-"): value for name, value in binary.attributes.items() if name.startswith("ce-")}
    body = msgspec.json.encode({**named, "data": complete})
    structured = Message(binary.subscription, "x", "2", body, {"content-type": "application/cloudevents+json"}, 1)
    consumer = create_consumer(notification_units, bus, lambda: None)

    verdicts = await consumer.handle([*map(delivery, roster_changes), structured])
    assert await consumer.handle([binary]) == [ACK]

    assert set(verdicts) == {ACK}
    assert len(await told(notification_engine)) == len(interested)


async def test_the_dispatcher_is_woken_after_the_commit_and_only_when_there_is_something_to_send(
    notification_units: UnitsOfWork, bus: PubSub
) -> None:
    (*roster_changes, complete), _ = a_labour(2)
    woken = []
    consumer = create_consumer(notification_units, bus, lambda: woken.append("now"))

    await consumer.handle([delivery(change) for change in roster_changes])
    assert woken == []
    await consumer.handle([delivery(complete)])
    assert woken == ["now"]


@pytest.mark.parametrize(
    ("changed", "reason"),
    [
        ({"ce-type": "labour.paused"}, "unknown-type"),
        ({"ce-type": "notification.sent"}, "unknown-type"),
        ({"ce-dataschema": "urn:fernlabour:labour.completed:9"}, "unknown-version"),
    ],
)
async def test_an_unknown_event_is_dead_lettered_at_once(
    notification_units: UnitsOfWork, bus: PubSub, changed: dict[str, str], reason: str
) -> None:
    good = delivery(a_labour(1)[0][-1])
    stranger = Message(good.subscription, "x", "1", good.data, {**good.attributes, **changed}, 1)

    assert await create_consumer(notification_units, bus, lambda: None).handle([stranger]) == [ACK]

    [dead] = await pull_all(bus, "labour.completed.dlq")
    assert dead.attributes["dead-letter-reason"] == reason


KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
PUSHER = "pusher@fern-local.iam.gserviceaccount.com"


@pytest.fixture
async def push_url(
    notification_url: str, project: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[str]:
    """The push endpoint of a notification-api that trusts the keys of an emulator."""
    async with embedded.running(tmp_path / "bus") as emulator:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", emulator.target)
        settings = local_settings(
            notification_url,
            PUBSUB_PROJECT_ID=project,
            PUSH_AUDIENCE="fern",
            PUSH_ISSUER=emulator.http_url,
            PUSH_JWKS_URL=f"{emulator.http_url}/oauth2/v3/certs",
            PUSH_SERVICE_ACCOUNT=PUSHER,
        )
        async with served(build(settings).public) as url:
            yield f"{url}/pubsub/push"


def pushed(message: Message) -> dict[str, Any]:
    return {
        "message": {
            "messageId": message.message_id,
            "data": base64.b64encode(message.data).decode(),
            "attributes": message.attributes,
        },
        "subscription": f"projects/p/subscriptions/{message.subscription}",
        "deliveryAttempt": 1,
    }


@pytest.mark.parametrize("authorization", [None, "Bearer x.y.z", "Basic abc", "forged"])
async def test_push_without_a_valid_token_is_refused_and_has_no_effect(
    push_url: str, notification_engine: AsyncEngine, authorization: str | None
) -> None:
    if authorization == "forged":
        authorization = "Bearer " + jwt.encode({"aud": "fern"}, KEY, algorithm="RS256", headers={"kid": "fern"})
    headers = {"Authorization": authorization} if authorization else {}

    async with httpx.AsyncClient() as client:
        answer = await client.post(push_url, json=pushed(delivery(a_labour(1)[0][0])), headers=headers)

    assert answer.status_code in (401, 403)
    async with notification_engine.connect() as connection:
        assert (await connection.execute(text("SELECT count(*) FROM processed_event"))).scalar_one() == 0


async def test_the_bus_pushes_with_a_valid_token_and_delivers_again_what_is_early(
    push_url: str, notification_engine: AsyncEngine, project: str
) -> None:
    await asyncio.to_thread(_create_push_subscriptions, project, push_url)
    events, expected = a_labour(3)
    bus = PubSub(project)
    for event in reversed(events):  # the roster comes last, so everything before it has to be pushed again
        await bus.publish(event.type, [Outgoing(msgspec.json.encode(event), context(event, uuid7()))])

    async def all_told() -> bool:
        return set(await told(notification_engine)) == expected

    await eventually(all_told, what="everyone is told")
    await bus.close()


def _create_push_subscriptions(project: str, endpoint: str) -> None:
    token = PushConfig.OidcToken(service_account_email=PUSHER, audience="fern")
    push = PushConfig(push_endpoint=endpoint, oidc_token=token)
    retry = RetryPolicy(minimum_backoff=Duration(nanos=100_000_000), maximum_backoff=Duration(seconds=1))
    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        for topic in TOPICS:
            path = publisher.create_topic(name=f"projects/{project}/topics/{topic}").name
            name = f"projects/{project}/subscriptions/notification.{topic}"
            subscriber.create_subscription(Subscription(name=name, topic=path, push_config=push, retry_policy=retry))


async def test_the_migrations_make_the_tables_that_the_code_expects(notification_engine: AsyncEngine) -> None:
    assert await schema_differences(notification_engine, metadata) == []
