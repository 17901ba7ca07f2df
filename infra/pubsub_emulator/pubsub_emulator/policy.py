"""Limits and defaults of the documented service, and the checks that name the field they refuse."""

import re
from typing import Final

from google.protobuf.duration_pb2 import Duration
from grpc import StatusCode

from pubsub_emulator.errors import CallRefused, invalid
from pubsub_emulator.filters import Filter
from pubsub_emulator.wire import Raw

DELETED_TOPIC: Final = "_deleted-topic_"
DAY: Final = 86_400
DEFAULT_ACK_DEADLINE: Final = 10
DEFAULT_RETENTION: Final = 7 * DAY
DEFAULT_ATTEMPTS: Final = 5
MAX_PUBLISH_MESSAGES: Final = 1000
MAX_PUBLISH_BYTES: Final = 10_000_000
MAX_ATTRIBUTES: Final = 100
MAX_KEY_BYTES: Final = 256
MAX_VALUE_BYTES: Final = 1024
MAX_ORDERING_KEY_BYTES: Final = 1024

_ID: Final = r"(?!goog)[A-Za-z][A-Za-z0-9\-_.~+%]{2,254}"
_PROJECT: Final = re.compile(r"projects/[^/]+")
_NAMES: Final = {kind: re.compile(rf"projects/[^/]+/{kind}/{_ID}", re.ASCII) for kind in ("topics", "subscriptions")}
_UNSUPPORTED_TOPIC: Final = ("schema_settings", "ingestion_data_source_settings", "message_transforms")
_UNSUPPORTED_SUBSCRIPTION: Final = ("bigquery_config", "cloud_storage_config", "bigtable_config", "message_transforms")


def check_name(kind: str, field: str, name: str) -> None:
    if not _NAMES[kind].fullmatch(name):
        raise invalid(
            f"{field}: {name[:300]!r} is not of the form projects/<project>/{kind}/<id>, where the id has 3 to 255 letters, "
            "digits or -_.~+%, starts with a letter and not with 'goog'"
        )


def check_project(field: str, name: str) -> None:
    if not _PROJECT.fullmatch(name):
        raise invalid(f"{field}: {name[:300]!r} is not of the form projects/<project>")


def check_topic(topic: Raw) -> None:
    check_name("topics", "name", topic.name)
    _check_unsupported(topic, _UNSUPPORTED_TOPIC)
    if topic.HasField("message_retention_duration"):
        _check_between("message_retention_duration", topic.message_retention_duration, 600, 31 * DAY)


def complete_subscription(subscription: Raw) -> None:
    """Check a subscription and write the service's defaults into it."""
    check_name("subscriptions", "name", subscription.name)
    _check_unsupported(subscription, _UNSUPPORTED_SUBSCRIPTION)
    subscription.push_config.SetInParent()
    subscription.ack_deadline_seconds = subscription.ack_deadline_seconds or DEFAULT_ACK_DEADLINE
    check_deadline("ack_deadline_seconds", subscription.ack_deadline_seconds)
    if not subscription.HasField("message_retention_duration"):
        subscription.message_retention_duration.seconds = DEFAULT_RETENTION
    _check_between("message_retention_duration", subscription.message_retention_duration, 600, 31 * DAY)
    if subscription.HasField("dead_letter_policy"):
        _complete_dead_letter_policy(subscription.dead_letter_policy)
    if subscription.HasField("retry_policy"):
        _complete_retry_policy(subscription.retry_policy)
    if subscription.push_config.HasField("no_wrapper"):
        raise CallRefused(StatusCode.UNIMPLEMENTED, "push_config.no_wrapper: not supported by this emulator")
    endpoint = subscription.push_config.push_endpoint
    if endpoint and not endpoint.startswith(("http://", "https://")):
        raise invalid(f"push_config.push_endpoint: {endpoint!r} is not an http or https URL")
    if endpoint and subscription.enable_exactly_once_delivery:
        raise invalid("enable_exactly_once_delivery: exactly-once delivery is for pull subscriptions only")
    Filter.parse(subscription.filter)


def _complete_dead_letter_policy(policy: Raw) -> None:
    check_name("topics", "dead_letter_policy.dead_letter_topic", policy.dead_letter_topic)
    policy.max_delivery_attempts = policy.max_delivery_attempts or DEFAULT_ATTEMPTS
    if not 5 <= policy.max_delivery_attempts <= 100:
        raise CallRefused(
            StatusCode.OUT_OF_RANGE,
            f"dead_letter_policy.max_delivery_attempts: {policy.max_delivery_attempts} is not between 5 and 100",
        )


def _complete_retry_policy(policy: Raw) -> None:
    if not policy.HasField("minimum_backoff"):
        policy.minimum_backoff.seconds = 10
    if not policy.HasField("maximum_backoff"):
        policy.maximum_backoff.seconds = 600
    _check_between("retry_policy.minimum_backoff", policy.minimum_backoff, 0, 600)
    _check_between("retry_policy.maximum_backoff", policy.maximum_backoff, 0, 600)
    if seconds(policy.minimum_backoff) > seconds(policy.maximum_backoff):
        raise invalid("retry_policy.minimum_backoff: must not exceed maximum_backoff")


def check_deadline(field: str, value: int) -> None:
    if not 10 <= value <= 600:
        raise invalid(f"{field}: {value} is not between 10 and 600 seconds")


def check_extension(field: str, value: int) -> None:
    if not 0 <= value <= 600:
        raise invalid(f"{field}: {value} is not between 0 and 600 seconds")


def check_publish_size(size: int) -> None:
    if size > MAX_PUBLISH_BYTES:
        raise invalid(f"messages: the request has {size} bytes, at most {MAX_PUBLISH_BYTES} are allowed")


def check_publish(request: Raw) -> None:
    """The whole request is refused if one message is bad, as the service does."""
    messages = request.messages
    if not messages:
        raise invalid("messages: must not be empty")
    if len(messages) > MAX_PUBLISH_MESSAGES:
        raise invalid(f"messages: {len(messages)} in one request, at most {MAX_PUBLISH_MESSAGES} are allowed")
    ordering_key = messages[0].ordering_key
    if len(ordering_key.encode()) > MAX_ORDERING_KEY_BYTES:
        raise invalid(f"messages[0].ordering_key: longer than {MAX_ORDERING_KEY_BYTES} bytes")
    for index, message in enumerate(messages):
        if message.ordering_key != ordering_key:
            raise invalid(f"messages[{index}].ordering_key: all messages of a request must have the same ordering key")
        if attributes := message.attributes:
            _check_attributes(index, attributes)
        elif not message.data:
            raise invalid(f"messages[{index}]: must have data or attributes")


def _check_attributes(index: int, attributes: Raw) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid(
            f"messages[{index}].attributes: {len(attributes)} attributes, at most {MAX_ATTRIBUTES} are allowed"
        )
    for key, value in attributes.items():
        # Four bytes a character at most: only long ones need to be encoded to be measured.
        if not key or (len(key) > MAX_KEY_BYTES // 4 and len(key.encode()) > MAX_KEY_BYTES):
            raise invalid(f"messages[{index}].attributes: the key {key[:40]!r} must have 1 to {MAX_KEY_BYTES} bytes")
        if len(value) > MAX_VALUE_BYTES // 4 and len(value.encode()) > MAX_VALUE_BYTES:
            raise invalid(f"messages[{index}].attributes[{key!r}]: the value is longer than {MAX_VALUE_BYTES} bytes")
        if key.startswith("goog") and not key.startswith("googclient_"):
            raise invalid(f"messages[{index}].attributes: the key {key[:40]!r} must not start with 'goog'")


def backoff(subscription: Raw, failures: int) -> float:
    """Seconds until the next attempt, doubled with each failure. A push subscription without a policy backs off as well."""
    if subscription.HasField("retry_policy"):
        shortest = seconds(subscription.retry_policy.minimum_backoff)
        longest = seconds(subscription.retry_policy.maximum_backoff)
    elif subscription.push_config.push_endpoint:
        shortest, longest = 0.1, 60.0
    else:
        return 0.0
    return float(min(longest, shortest * 2 ** min(failures - 1, 20)))


def seconds(duration: Duration) -> float:
    return duration.seconds + duration.nanos / 1e9


def _check_between(field: str, value: Duration, lowest: int, highest: int) -> None:
    if not lowest <= seconds(value) <= highest:
        raise invalid(f"{field}: {seconds(value):g} s is not between {lowest} s and {highest} s")


def _check_unsupported(config: Raw, fields: tuple[str, ...]) -> None:
    present = {field.name for field, _ in config.ListFields()}
    for field in fields:
        if field in present:
            raise CallRefused(StatusCode.UNIMPLEMENTED, f"{field}: not supported by this emulator")
