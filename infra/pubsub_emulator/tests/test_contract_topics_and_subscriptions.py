"""Contract cases 1 to 14: topics and subscriptions."""

import pytest
from google.protobuf.duration_pb2 import Duration
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import Subscription, Topic
from grpc import StatusCode

from .parts import PROJECT, Bus, fresh, refusal, texts

DAY = 86_400


async def test_01_a_topic_can_be_created_only_once(bus: Bus) -> None:
    topic = await bus.topic()

    again = await refusal(bus.publisher.create_topic(name=topic))

    assert again is StatusCode.ALREADY_EXISTS


@pytest.mark.parametrize(
    "name",
    [
        "",
        "topics/orphan",
        f"{PROJECT}/topics/ab",
        f"{PROJECT}/topics/1abc",
        f"{PROJECT}/topics/googabc",
        f"{PROJECT}/topics/a b c",
        f"{PROJECT}/topics/{'a' * 256}",
    ],
)
async def test_02_a_bad_name_is_refused(bus: Bus, name: str) -> None:
    assert await refusal(bus.publisher.create_topic(name=name)) is StatusCode.INVALID_ARGUMENT


async def test_03_a_missing_topic_is_not_found(bus: Bus) -> None:
    missing = f"{PROJECT}/topics/{fresh('missing')}"

    assert await refusal(bus.publisher.get_topic(topic=missing)) is StatusCode.NOT_FOUND
    assert await refusal(bus.publisher.delete_topic(topic=missing)) is StatusCode.NOT_FOUND
    assert await refusal(bus.publish(missing, "hello")) is StatusCode.NOT_FOUND


async def test_04_labels_can_be_updated(bus: Bus) -> None:
    topic = await bus.topic()

    labelled = Topic(name=topic, labels={"team": "midwives"})
    change = bus.publisher.update_topic(topic=labelled, update_mask=FieldMask(paths=["labels"]))

    if bus.deviates(4):
        assert await refusal(change) is StatusCode.INVALID_ARGUMENT
        return
    assert dict((await change).labels) == {"team": "midwives"}
    assert dict((await bus.publisher.get_topic(topic=topic)).labels) == {"team": "midwives"}


async def test_05_an_update_without_a_mask_is_refused(bus: Bus) -> None:
    topic = await bus.topic()

    change = bus.publisher.update_topic(topic=Topic(name=topic), update_mask=FieldMask())

    assert await refusal(change) is StatusCode.INVALID_ARGUMENT


async def test_06_pages_are_complete_and_sorted(bus: Bus) -> None:
    project = f"projects/{fresh('paging')}"
    names = [f"{project}/topics/topic-{number:02}" for number in range(25)]
    for name in reversed(names):
        await bus.publisher.create_topic(name=name)

    listing = await bus.publisher.list_topics({"project": project, "page_size": 10})
    pages = [page async for page in listing.pages]

    assert [len(page.topics) for page in pages] == [10, 10, 5]
    assert [topic.name for page in pages for topic in page.topics] == names


async def test_07_a_subscription_needs_its_topic(bus: Bus) -> None:
    missing = f"{PROJECT}/topics/{fresh('missing')}"

    assert await refusal(bus.subscribe(missing)) is StatusCode.NOT_FOUND


async def test_08_a_subscription_gets_the_documented_defaults(bus: Bus) -> None:
    subscription = await bus.subscribe(await bus.topic())

    assert subscription.ack_deadline_seconds == 10
    assert Subscription.pb(subscription).message_retention_duration.seconds == 7 * DAY


async def test_09_an_ack_deadline_above_ten_minutes_is_refused(bus: Bus) -> None:
    topic = await bus.topic()

    assert await refusal(bus.subscribe(topic, ack_deadline_seconds=601)) is StatusCode.INVALID_ARGUMENT


async def test_10_an_ack_deadline_below_ten_seconds_is_refused(bus: Bus) -> None:
    topic = await bus.topic()

    refused = await refusal(bus.subscribe(topic, ack_deadline_seconds=5))

    assert refused is (None if bus.deviates(10) else StatusCode.INVALID_ARGUMENT)


async def test_11_messages_can_be_retained_for_31_days(bus: Bus) -> None:
    topic = await bus.topic()

    refused = await refusal(bus.subscribe(topic, message_retention_duration=Duration(seconds=31 * DAY)))

    assert refused is (StatusCode.INVALID_ARGUMENT if bus.deviates(11) else None)


async def test_12_ordering_cannot_be_changed_later(bus: Bus) -> None:
    _, subscription = await bus.pair()

    ordered = Subscription(name=subscription, enable_message_ordering=True)
    mask = FieldMask(paths=["enable_message_ordering"])
    change = bus.subscriber.update_subscription(subscription=ordered, update_mask=mask)

    assert await refusal(change) is StatusCode.INVALID_ARGUMENT


async def test_13_dead_letters_take_at_least_5_attempts_and_5_by_default(bus: Bus) -> None:
    topic, dead = await bus.topic(), await bus.topic()

    too_few = {"dead_letter_topic": dead, "max_delivery_attempts": 4}
    default = await bus.subscribe(topic, dead_letter_policy={"dead_letter_topic": dead})

    # The service calls it out of range, which HTTP clients see as a bad request like any other.
    assert await refusal(bus.subscribe(topic, dead_letter_policy=too_few)) is StatusCode.OUT_OF_RANGE
    assert default.dead_letter_policy.max_delivery_attempts == 5


async def test_14_what_was_published_before_its_topic_was_deleted_can_still_be_pulled(bus: Bus) -> None:
    topic, subscription = await bus.pair()
    await bus.publish(topic, "survivor")

    await bus.publisher.delete_topic(topic=topic)

    assert (await bus.subscriber.get_subscription(subscription=subscription)).topic == "_deleted-topic_"
    assert texts(await bus.pull(subscription)) == ["survivor"]
