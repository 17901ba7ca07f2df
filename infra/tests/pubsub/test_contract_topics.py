"""Contract cases 1 to 6: topics."""

import pytest
from google.protobuf.field_mask_pb2 import FieldMask
from google.pubsub_v1.types import ListTopicsRequest, Topic
from grpc import StatusCode

from .parts import PROJECT, Bus, fresh, refusal


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

    change = bus.publisher.update_topic(
        topic=Topic(name=topic, labels={"team": "midwives"}), update_mask=FieldMask(paths=["labels"])
    )

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

    pages = [
        page
        async for page in (
            await bus.publisher.list_topics(request=ListTopicsRequest(project=project, page_size=10))
        ).pages
    ]

    assert [len(page.topics) for page in pages] == [10, 10, 5]
    assert [topic.name for page in pages for topic in page.topics] == names
