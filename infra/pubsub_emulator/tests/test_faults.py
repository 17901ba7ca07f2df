"""FaultSwitches: switched while it runs, inside what the service promises, and remembered."""

import asyncio
import time
from pathlib import Path

import httpx
import pytest
from google.api_core.exceptions import ServiceUnavailable
from grpc import StatusCode

from pubsub_emulator.faults import DESCRIPTIONS
from pubsub_emulator.server import Running, running

from .parts import Bus, StreamingPull, refusal, texts


class FaultSwitches:
    def __init__(self, url: str) -> None:
        self._url = f"{url}/faults"

    async def call(self, method: str, path: str = "", body: object = None) -> httpx.Response:
        async with httpx.AsyncClient() as client:
            return await client.request(method, self._url + path, json=body)

    async def set(self, name: str, **settings: object) -> None:
        (await self.call("PUT", f"/{name}", settings)).raise_for_status()

    async def on(self) -> list[dict[str, object]]:
        return [item for item in (await self.call("GET")).json()["items"] if item["active"]]


@pytest.fixture
def faults(emulator: Running) -> FaultSwitches:
    return FaultSwitches(emulator.http_url)


async def test_all_are_listed_and_off_at_first(faults: FaultSwitches) -> None:
    items = (await faults.call("GET")).json()["items"]

    assert [item["name"] for item in items] == list(DESCRIPTIONS)
    assert not any(item["active"] for item in items)


async def test_they_are_set_cleared_one_by_one_and_cleared_together(faults: FaultSwitches) -> None:
    await faults.set("duplicate", rate=0.5)
    await faults.set("delay", seconds=2, topic="labour.begun")
    await faults.set("hang")

    assert (await faults.call("DELETE", "/hang")).status_code == 204
    assert [(item["name"], item["rate"]) for item in await faults.on()] == [("duplicate", 0.5), ("delay", 1.0)]
    assert (await faults.call("DELETE")).status_code == 204
    assert await faults.on() == []


@pytest.mark.parametrize(
    ("name", "body", "status"),
    [
        ("gremlins", {}, 404),
        ("hang", {"rate": 2}, 422),
        ("hang", {"rate": True}, 422),
        ("hang", {"seconds": 1}, 422),
        ("delay", {"seconds": -1}, 422),
        ("delay", {"topic": 7}, 422),
        ("hang", [], 422),
    ],
)
async def test_a_bad_fault_is_a_problem_that_says_what_is_wrong(
    faults: FaultSwitches, name: str, body: object, status: int
) -> None:
    response = await faults.call("PUT", f"/{name}", body)

    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    assert response.json()["status"] == status
    assert response.json()["detail"]
    assert await faults.on() == []


@pytest.mark.system
async def test_they_survive_a_restart(tmp_path: Path) -> None:
    async with running(tmp_path) as first:
        await FaultSwitches(first.http_url).set("delay", rate=0.25, seconds=3, topic="labour.begun")

    async with running(tmp_path) as second:
        (fault,) = await FaultSwitches(second.http_url).on()

    settings = {"active": True, "rate": 0.25, "seconds": 3, "topic": "labour.begun"}
    assert fault == {"name": "delay", "description": DESCRIPTIONS["delay"], **settings}


async def test_duplicate_delivers_a_copy_whose_ack_counts_for_both(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    await faults.set("duplicate")
    await ours.publish(topic, "twice")

    first, second = await ours.pull(subscription, 2)

    assert first.message == second.message
    assert first.ack_id != second.ack_id
    await ours.ack(subscription, second)
    await ours.nack(subscription, first)
    assert await ours.nothing(subscription)


async def test_what_is_not_acked_is_counted_with_its_age(ours: Bus, emulator: Running) -> None:
    topic, subscription = await ours.pair()
    await ours.publish(topic, "acked", "held", "never looked at")
    first, _ = await ours.pull(subscription, 2)
    await ours.ack(subscription, first)

    async with httpx.AsyncClient() as client:
        items = (await client.get(f"{emulator.http_url}/backlog")).json()["items"]

    [item] = [item for item in items if subscription.endswith(f"/{item['subscription']}")]
    assert topic.endswith(f"/{item['topic']}")
    assert (item["unacked"], item["leased"]) == (2, 1)
    assert item["oldest_seconds"] >= 0


async def test_exactly_once_and_ordering_keys_are_left_alone(ours: Bus, faults: FaultSwitches) -> None:
    topic = await ours.topic()
    once = await ours.subscription(topic, enable_exactly_once_delivery=True)
    ordered = await ours.subscription(topic, enable_message_ordering=True)
    await faults.set("duplicate")
    await faults.set("reorder")

    await ours.publish(topic, *"abcdef", ordering_key="ada")

    assert sorted(texts(await ours.pull(once, 7, within=3))) == [*"abcdef"]
    assert texts(await ours.pull(ordered, 7, within=3)) == [*"abcdef"]


async def test_delay_holds_a_message_back(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    await faults.set("delay", seconds=1.5)

    published = time.monotonic()
    await ours.publish(topic, "late")

    assert texts(await ours.pull(subscription)) == ["late"]
    assert time.monotonic() - published >= 1.5


async def test_reorder_shuffles_what_is_ready(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    await faults.set("reorder")
    numbers = [str(number) for number in range(200)]

    await ours.publish(topic, *numbers)

    received = texts(await ours.pull(subscription, 200))
    assert received != numbers
    assert sorted(received, key=int) == numbers


async def test_forget_acks_answers_but_keeps_the_message(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    await ours.publish(topic, "undead")
    received = await ours.pull(subscription)
    await faults.set("forget-acks")

    await ours.ack(subscription, *received)
    await ours.nack(subscription, *received)

    assert texts(await ours.pull(subscription)) == ["undead"]


async def test_refuse_publish_strikes_only_the_topic_that_was_named(ours: Bus, faults: FaultSwitches) -> None:
    struck, spared = await ours.topic(), await ours.topic()

    await faults.set("refuse-publish", topic=struck.rpartition("/")[2])

    assert await refusal(ours.publish(struck, "x")) is StatusCode.UNAVAILABLE
    assert await refusal(ours.publish(spared, "x")) is None


async def test_a_rate_strikes_some_and_spares_some(ours: Bus, faults: FaultSwitches) -> None:
    topic = await ours.topic()
    await faults.set("refuse-publish", rate=0.5)

    outcomes = {await refusal(ours.publish(topic, "x")) for _ in range(60)}

    assert outcomes == {None, StatusCode.UNAVAILABLE}


async def test_hang_leaves_a_publish_unanswered_until_it_is_cleared(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    await faults.set("hang")

    publishing = asyncio.create_task(ours.publish(topic, "patient"))
    await asyncio.wait([publishing], timeout=0.5)
    assert not publishing.done()
    await faults.call("DELETE", "/hang")

    assert len(await publishing) == 1
    assert texts(await ours.pull(subscription)) == ["patient"]


async def test_drop_streams_ends_the_stream_and_gives_the_message_to_the_next(ours: Bus, faults: FaultSwitches) -> None:
    topic, subscription = await ours.pair()
    stream = await StreamingPull(ours).open(subscription, ack_deadline=600)
    await faults.set("drop-streams")

    await ours.publish(topic, "slippery")
    with pytest.raises(ServiceUnavailable):
        await stream.end()
    await faults.call("DELETE")

    assert texts(await ours.pull(subscription)) == ["slippery"]
