"""A relay starts when the bus has the topics of all events that its service can record."""

import asyncio

from sqlalchemy.ext.asyncio import AsyncEngine

from contracts.registry import EVENTS, topics_of
from e2e.support.bus import apply_topology
from e2e.support.sample_events import Happened, all_published, emit
from e2e.support.waiting import eventually
from messaging import progress
from messaging.pubsub import PubSub
from messaging.unit_of_work import UnitsOfWork
from servicekit.worker_settings import RelaySettings
from servicekit.workers import run_relay


async def test_a_relay_waits_for_a_topic_that_is_not_declared_and_says_which(
    labour_engine: AsyncEngine, labour_url: str, labour_units: UnitsOfWork, bus: PubSub, project: str
) -> None:
    variables = {"FERN_MODE": "local", "LABOUR_DATABASE_URL": labour_url, "PUBSUB_PROJECT_ID": project}
    await emit(labour_units, Happened("a", 1))
    stop = asyncio.Event()
    topics = (Happened.type, "labour.paused")
    relay = asyncio.create_task(
        run_relay(stop, name="relay", settings=RelaySettings.load("labour", variables), topics=topics)
    )

    async def reason() -> str:
        return progress.state().reason

    said = await eventually(reason, lambda reason: "labour.paused" in reason, what="the relay says what it waits for")
    assert "no topic labour.paused: declare it in infra/topology.toml" in said
    assert not await all_published(labour_engine)
    await apply_topology(project, {Happened.type: ["tests"], "labour.paused": []})

    await eventually(lambda: all_published(labour_engine), what="the relay has started")
    stop.set()
    await asyncio.wait_for(relay, 60)


def test_every_event_belongs_to_one_service() -> None:
    labour, notification = topics_of("labour"), topics_of("notification")

    assert sorted((*labour, *notification)) == sorted({name for name, _ in EVENTS})
    assert {name.partition(".")[0] for name in notification} == {"notification"}
