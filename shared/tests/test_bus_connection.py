"""The connection to the bus: it survives idle times, a silent bus is noticed, and a closed connection is made again at once."""

import asyncio
from collections.abc import AsyncIterator, MutableMapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from e2e.support.bus import apply_topology
from e2e.support.ports import free_port_base
from e2e.support.sample_events import TOPICS, Happened
from e2e.support.strict_about_pings import strict_proxy
from e2e.support.waiting import eventually
from messaging import pubsub
from messaging.bus import Message, Outgoing
from messaging.consumer import Verdict
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from pubsub_emulator import server as embedded

pytestmark = pytest.mark.system

SUBSCRIPTIONS = [f"tests.{topic}" for topic in TOPICS]

GRPC_PING_MINIMUM = 300.0  # seconds between pings that a gRPC server allows by default while it sends no data


class Inbox:
    """Receives and acknowledges everything, until the block is left."""

    def __init__(self) -> None:
        self.messages = asyncio.Queue[str]()

    async def _handle(self, batch: Sequence[Message]) -> list[Verdict]:
        for message in batch:
            self.messages.put_nowait(message.data.decode())
        return [Verdict.ACK] * len(batch)

    @asynccontextmanager
    async def receiving(self, bus: PubSub) -> AsyncIterator[None]:
        stop = asyncio.Event()
        task = asyncio.create_task(Receiver(bus, SUBSCRIPTIONS, self._handle).run(stop))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(task, 60)
            await bus.close()

    async def next(self) -> str:
        return await asyncio.wait_for(self.messages.get(), 60)


async def publish(bus: PubSub, text: str) -> None:
    await bus.publish(Happened.type, [Outgoing(text.encode(), {})])


def broken(lines: Sequence[MutableMapping[str, Any]]) -> set[str]:
    """The dependencies that were unavailable at some time."""
    return {line["dependency"] for line in lines if line["event"] == "dependency unavailable"}


def test_we_ping_less_often_than_servers_allow() -> None:
    assert pubsub.KEEPALIVE_SECONDS > GRPC_PING_MINIMUM


async def test_an_idle_connection_is_kept_by_a_server_that_is_strict_about_pings(
    bus_host: str, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Google's emulator before 0.8.32, which answers no heartbeats, at another speed: a minute is 0.6 s. Pings every 30 s, as
    they once were, would end the streams after some 4 s. (gRPC's clients send at most one ping a second.)
    """
    monkeypatch.setattr(pubsub, "PROTOCOL_VERSION", 0)
    minute = 0.6
    await apply_topology(project, TOPICS)
    async with strict_proxy(bus_host, minimum=5 * minute) as address:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", address)
        inbox, bus = Inbox(), PubSub(project, heartbeat=0.4 * minute, keepalive=6 * minute)
        with capture_logs() as lines:
            async with inbox.receiving(bus):
                await publish(bus, "before")
                assert await inbox.next() == "before"
                await asyncio.sleep(10 * minute)  # the idle time; it orders nothing
                await publish(bus, "after")
                assert await inbox.next() == "after"

    assert broken(lines) == set()


async def test_a_silent_bus_is_noticed_by_its_streams_which_come_back_with_it(
    tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with embedded.started(tmp_path / "bus") as server:
        monkeypatch.setenv("PUBSUB_EMULATOR_HOST", server.target)
        await apply_topology(project, TOPICS)
        inbox = Inbox()
        bus = PubSub(project, heartbeat=0.5)
        with capture_logs() as lines:

            async def answered() -> bool:
                return bus.answers_heartbeats

            async def noticed() -> bool:
                return any("no answer to a heartbeat" in str(line.get("reason")) for line in lines)

            async with inbox.receiving(bus):
                await publish(bus, "before")
                assert await inbox.next() == "before"
                await eventually(answered, what="the bus answers a heartbeat")
                server.pause()
                try:
                    await eventually(noticed, what="the silence is noticed")
                finally:
                    server.resume()
                await publish(bus, "after")
                assert await inbox.next() == "after"


@pytest.mark.parametrize("remembers", [True, False])
async def test_streams_and_publishes_come_back_when_the_bus_is_started_again(
    tmp_path: Path, project: str, monkeypatch: pytest.MonkeyPatch, remembers: bool
) -> None:
    """Google's emulator forgets its topics when it stops: they are there again once the topology is applied."""
    port, inbox = free_port_base(), Inbox()
    monkeypatch.setenv("PUBSUB_EMULATOR_HOST", f"127.0.0.1:{port}")
    first, second = tmp_path / "bus", tmp_path / ("bus" if remembers else "new bus")
    with capture_logs() as lines:
        async with embedded.running(first, port=port):
            await apply_topology(project, TOPICS)
            bus = PubSub(project)
            receiving = inbox.receiving(bus)
            await receiving.__aenter__()
            await publish(bus, "before")
            assert await inbox.next() == "before"

        async def all_broke() -> bool:
            return broken(lines) == {f"subscription {name}" for name in SUBSCRIPTIONS}

        await eventually(all_broke, what="every stream has noticed that the bus is gone")
        async with embedded.running(second, port=port):
            if not remembers:
                await apply_topology(project, TOPICS)
            await publish(bus, "after")  # not retried by this test: the first call succeeds
            assert await inbox.next() == "after"
            await receiving.__aexit__(None, None, None)
