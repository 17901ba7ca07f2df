"""Live updates: a change by any process reaches every open stream."""

import asyncio
import socket
from collections.abc import AsyncIterator
from urllib.parse import urlsplit
from uuid import UUID, uuid4

import httpx
import msgspec
import pytest
from httpx import AsyncClient
from sqlalchemy.ext.asyncio import AsyncEngine
from uuid_utils.compat import uuid7

from contracts.events import NotificationDelivered, NotificationSent
from e2e.support.api import speaking_as
from e2e.support.bus import apply_topology
from labour.application.told import TOPICS
from labour.consumer import create_consumer
from labour.http import live
from messaging.bus import Outgoing
from messaging.envelope import attributes
from messaging.pubsub import PubSub
from servicekit.workers import run_consumer
from tests.labour_parts import GRACE, NOW, api_process, assert_problem, execute, message_facts, plan
from tests.live_parts import DEADLINE, NEVER, following, next_event


@pytest.fixture
def wake_ups_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", NEVER)


@pytest.fixture
async def other_client(labour_url: str) -> AsyncIterator[AsyncClient]:
    """A second process of the API on the same database."""
    async with api_process(labour_url) as client:
        yield client


async def test_a_stream_begins_with_the_labour_as_it_is(labour_client: AsyncClient) -> None:
    labour = await plan(labour_client)
    await labour_client.post(f"{labour}/subscribers", json=GRACE)

    async with following(labour_client, labour) as lines:
        first = await next_event(lines)

    assert first == ("labour", "2", (await labour_client.get(labour)).json())


@pytest.mark.usefixtures("wake_ups_only")
async def test_what_another_process_changes_is_seen_by_all_who_follow(
    labour_client: AsyncClient, other_client: AsyncClient
) -> None:
    labour = await plan(labour_client)
    eve = speaking_as("eve")
    other_labour = (await labour_client.post("/api/v1/labours", json={"mother_name": "Eve"}, headers=eve)).headers
    async with following(labour_client, labour) as one, following(other_client, labour) as two:
        assert [(await next_event(lines)).data["phase"] for lines in (one, two)] == ["planned", "planned"]

        await other_client.put(f"{other_labour['location']}/begin", headers=eve)
        begun = (await other_client.put(f"{labour}/begin")).json()
        assert [await next_event(lines) for lines in (one, two)] == [("labour", "2", begun)] * 2

        complete = (await labour_client.put(f"{labour}/complete")).json()
        assert [await next_event(lines) for lines in (one, two)] == [("labour", "3", complete)] * 2


@pytest.mark.usefixtures("wake_ups_only")
async def test_who_was_told_is_seen_as_soon_as_the_consumer_knows(
    labour_client: AsyncClient, labour_url: str, bus_host: str, project: str
) -> None:
    labour = await plan(labour_client)
    grace = (await labour_client.post(f"{labour}/subscribers", json=GRACE)).json()
    facts = message_facts(labour_id=UUID(labour.rpartition("/")[2]), person_id=UUID(grace["id"]))
    await apply_topology(project, {topic: ["labour"] for topic in TOPICS})
    bus, stop = PubSub(project), asyncio.Event()
    consuming = asyncio.create_task(
        run_consumer(
            stop,
            name="labour-consumer",
            database_url=labour_url,
            project_id=project,
            topics=TOPICS,
            create=create_consumer,
        )
    )

    async with following(labour_client, labour) as lines:
        assert (await next_event(lines)).kind == "labour"
        for event in (NotificationSent(**facts, sent_at=NOW), NotificationDelivered(**facts, delivered_at=NOW)):
            await _publish(bus, event)
            seen = await next_event(lines)
            assert (seen.kind, seen.id) == ("told", "2")
            assert [(told["name"], told["status"]) for told in seen.data] == [("Grace", event.type.rpartition(".")[2])]
    async with following(labour_client, labour) as lines:
        assert [(await next_event(lines)).kind for _ in range(2)] == ["labour", "told"]  # a later reader, too

    stop.set()
    await consuming
    await bus.close()


async def _publish(bus: PubSub, event: NotificationSent | NotificationDelivered) -> None:
    context = attributes(
        id=uuid7(),
        source="notification",
        type=event.type,
        version=1,
        subject=str(event.labour_id),
        time=NOW,
        traceparent="00-" + "a" * 32 + "-" + "b" * 16 + "-01",
    )
    await bus.publish(event.type, [Outgoing(msgspec.json.encode(event), context)])


async def test_a_change_whose_wake_up_was_lost_is_found_by_polling(
    labour_client: AsyncClient, labour_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.1)
    labour = await plan(labour_client)

    async with following(labour_client, labour) as lines:
        await next_event(lines)
        await execute(labour_engine, "UPDATE labour SET mother_name = 'Eve', version = version + 1")

        assert (await next_event(lines)).data["mother_name"] == "Eve"


async def test_a_stream_outlives_its_database_connections(
    labour_client: AsyncClient, labour_engine: AsyncEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "POLL_SECONDS", 0.1)
    labour = await plan(labour_client)

    async with following(labour_client, labour) as lines:
        await next_event(lines)
        await execute(
            labour_engine,
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
            " WHERE datname = current_database() AND application_name LIKE 'labour-api%'",
        )
        await execute(labour_engine, "UPDATE labour SET mother_name = 'Eve', version = version + 1")

        assert (await next_event(lines)).data["mother_name"] == "Eve"


async def test_while_nothing_happens_a_comment_keeps_the_stream_open(
    labour_client: AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(live, "HEARTBEAT_SECONDS", 0.05)
    labour = await plan(labour_client)

    async with following(labour_client, labour) as lines:
        await next_event(lines)
        beats = [await anext(lines) for _ in range(4)]

    assert beats == [": still here", "", ": still here", ""]


@pytest.mark.usefixtures("wake_ups_only")
async def test_clients_that_do_not_read_hold_up_no_others(
    labour_client: AsyncClient, labour_engine: AsyncEngine
) -> None:
    heavy = await plan(labour_client)
    await labour_client.put(f"{heavy}/complete")
    labour = await plan(labour_client)
    heavy_id = heavy.rpartition("/")[2]
    await execute(labour_engine, f"UPDATE labour SET mother_name = repeat('x', 3000000) WHERE id = '{heavy_id}'")
    address = urlsplit(str(labour_client.base_url))
    ada = speaking_as("ada")["Authorization"]
    request = f"GET {heavy}/events HTTP/1.1\r\nHost: localhost\r\nAuthorization: {ada}\r\n\r\n".encode()
    silent = [socket.create_connection((address.hostname or "", address.port or 0)) for _ in range(15)]
    for one in silent:  # more than there are connections to the database
        one.sendall(request)
        one.setblocking(False)
        await asyncio.wait_for(asyncio.get_running_loop().sock_recv(one, 1), DEADLINE)

    async with following(labour_client, labour) as lines:
        await next_event(lines)
        begun = (await labour_client.put(f"{labour}/begin")).json()
        assert (await next_event(lines)).data == begun

    for one in silent:
        one.close()


async def test_a_stop_ends_open_streams_instead_of_waiting_for_them(labour_url: str) -> None:
    first = asyncio.Event()

    async def follow(url: httpx.URL) -> list[str]:
        async with (
            AsyncClient(base_url=url, headers=speaking_as("ada")) as client,
            following(client, await plan(client)) as lines,
        ):
            await next_event(lines)
            first.set()
            return [line async for line in lines]  # raises if the stream is cut off

    async with api_process(labour_url) as client, asyncio.timeout(DEADLINE):
        reader = asyncio.create_task(follow(client.base_url))
        await first.wait()

    assert await reader == []


async def test_a_labour_that_does_not_exist_cannot_be_followed(labour_client: AsyncClient) -> None:
    assert_problem(await labour_client.get(f"/api/v1/labours/{uuid4()}/events"), 404, "no-such-labour")
