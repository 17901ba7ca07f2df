"""The topics and subscriptions declared in infra/topology.toml, and their application to the bus."""

import os
import time
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from google.api_core import exceptions
from google.cloud.pubsub_v1 import PublisherClient, SubscriberClient
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import DeadLetterPolicy, ExpirationPolicy, PushConfig, RetryPolicy, Subscription

from fern.delivery import FILE, Delivery, deliveries
from fern.errors import FernError, TopologyInvalid

WAIT_SECONDS = 30.0
DAY = 86400
MOST_ON_GOOGLES_EMULATOR = 7 * DAY  # of retention; Pub/Sub and our emulator accept 31 days
_MUTABLE = (
    "ack_deadline_seconds",
    "message_retention_duration",
    "retry_policy",
    "dead_letter_policy",
    "expiration_policy",
    "enable_exactly_once_delivery",
    "push_config",
)
_AS_DECLARED: Mapping[str, str] = MappingProxyType({})


@dataclass(frozen=True)
class Declared:
    """`subscriptions` maps a subscription to its topic and, unless it is itself for dead letters, its dead-letter topic.
    `delivery` has the delivery of each subscription of a consumer; dead letters are pulled.
    """

    topics: tuple[str, ...]
    subscriptions: dict[str, tuple[str, str | None]]
    options: dict[str, Any]
    delivery: dict[str, Delivery]

    @classmethod
    def load(cls, overrides: Mapping[str, str] = _AS_DECLARED) -> "Declared":
        """`overrides` has the delivery of consumers that were switched on this machine."""
        return cls.of(tomllib.loads(FILE.read_text()), overrides)

    @classmethod
    def of(cls, content: dict[str, Any], overrides: Mapping[str, str] = _AS_DECLARED) -> "Declared":
        topics: list[str] = []
        subscriptions: dict[str, tuple[str, str | None]] = {}
        for topic, consumers in content["topics"].items():
            dead = f"{topic}.dlq"
            topics += [topic, dead]
            subscriptions[dead] = (dead, None)
            subscriptions |= {f"{consumer}.{topic}": (topic, dead) for consumer in consumers}
        return cls(tuple(topics), subscriptions, content["subscription"], deliveries(content, overrides))

    def consumers(self) -> dict[str, list[str]]:
        """The consumers of each topic; a topic without any is missing."""
        consumers: dict[str, list[str]] = {}
        for name, (topic, dead) in self.subscriptions.items():
            if dead:
                consumers.setdefault(topic, []).append(name.removesuffix(f".{topic}"))
        return consumers


@dataclass
class Applied:
    created: int = 0
    updated: int = 0
    unchanged: int = 0


def apply(declared: Declared, project: str) -> Applied:
    """Create what is missing and update what differs; nothing is deleted. Waits up to 30 s for the bus.

    A change of the delivery is an update as well: messages keep accumulating meanwhile, and none is lost.
    """
    applied = Applied()
    wanted = [_subscription(declared, name, project) for name in declared.subscriptions]
    with PublisherClient() as publisher, SubscriberClient() as subscriber:
        _wait_for_the_bus(publisher, project)
        for topic in declared.topics:
            try:
                publisher.create_topic(name=f"projects/{project}/topics/{topic}", timeout=10)
                applied.created += 1
            except exceptions.AlreadyExists:
                applied.unchanged += 1
        for subscription in wanted:
            _apply_subscription(subscriber, subscription, applied)
    return applied


def _apply_subscription(subscriber: SubscriberClient, wanted: Subscription, applied: Applied) -> None:
    try:
        _create_or_update(subscriber, wanted, applied)
    except exceptions.InvalidArgument:
        kept: Duration = Subscription.pb(wanted).message_retention_duration
        if "PUBSUB_EMULATOR_HOST" not in os.environ or kept.seconds <= MOST_ON_GOOGLES_EMULATOR:
            raise
        kept.seconds = MOST_ON_GOOGLES_EMULATOR
        _create_or_update(subscriber, wanted, applied)


def _create_or_update(subscriber: SubscriberClient, wanted: Subscription, applied: Applied) -> None:
    try:
        subscriber.create_subscription(wanted, timeout=10)
        applied.created += 1
        return
    except exceptions.AlreadyExists:
        found = subscriber.get_subscription(subscription=wanted.name, timeout=10)
    if found.topic != wanted.topic:
        what = f"subscription {wanted.name} belongs to {found.topic}, not to {wanted.topic}; delete it first."
        raise FernError(what, command=f"gcloud pubsub subscriptions delete {wanted.name}")
    found.push_config.attributes.clear()  # Pub/Sub adds its own attributes
    if differing := [field for field in _MUTABLE if getattr(found, field) != getattr(wanted, field)]:
        subscriber.update_subscription({"subscription": wanted, "update_mask": FieldMask(paths=differing)}, timeout=10)
        applied.updated += 1
    else:
        applied.unchanged += 1


def _subscription(declared: Declared, name: str, project: str) -> Subscription:
    (topic, dead), options = declared.subscriptions[name], declared.options
    days = options["retention_days" if dead else "dead_letter_retention_days"]
    subscription = Subscription(
        name=f"projects/{project}/subscriptions/{name}",
        topic=f"projects/{project}/topics/{topic}",
        ack_deadline_seconds=options["ack_deadline_seconds"],
        message_retention_duration=Duration(seconds=days * DAY),
        expiration_policy=ExpirationPolicy(),  # without a time to live: an idle subscription is never deleted
    )
    if dead:
        subscription.enable_exactly_once_delivery = declared.delivery[name] is Delivery.EXACTLY_ONCE
        subscription.push_config = _push_config(name) if declared.delivery[name].is_pushed else PushConfig()
        shortest, longest = (_duration(options[f"{which}_backoff_seconds"]) for which in ("minimum", "maximum"))
        subscription.retry_policy = RetryPolicy(minimum_backoff=shortest, maximum_backoff=longest)
        attempts, dead_topic = options["max_delivery_attempts"], f"projects/{project}/topics/{dead}"
        subscription.dead_letter_policy = DeadLetterPolicy(dead_letter_topic=dead_topic, max_delivery_attempts=attempts)
    return subscription


def _push_config(name: str) -> PushConfig:
    """The push endpoint and its token, from PUSH_URL and the variables that tell the API what to accept."""
    url, audience, account = (os.environ.get(f"PUSH_{key}", "") for key in ("URL", "AUDIENCE", "SERVICE_ACCOUNT"))
    if not (url and audience and account):
        what = f"{name} is to be pushed, and its address is not set."
        raise TopologyInvalid(f"{what} Set PUSH_URL, PUSH_AUDIENCE and PUSH_SERVICE_ACCOUNT.")
    token = PushConfig.OidcToken(service_account_email=account, audience=audience)
    return PushConfig(push_endpoint=url, oidc_token=token)


def _duration(seconds: float) -> Duration:
    return Duration(seconds=int(seconds), nanos=round(seconds % 1 * 1e9))


def _wait_for_the_bus(publisher: PublisherClient, project: str) -> None:
    deadline = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            next(iter(publisher.list_topics(project=f"projects/{project}", timeout=2)), None)
            return
        except (exceptions.ServiceUnavailable, exceptions.DeadlineExceeded, exceptions.RetryError) as error:
            if time.monotonic() > deadline:
                where = os.environ.get("PUBSUB_EMULATOR_HOST", "Google Cloud")
                what = f"Pub/Sub does not answer at {where}."
                raise FernError(what, command="fern status", details=str(error)) from None
            time.sleep(0.2)
