from collections.abc import AsyncIterator

import pytest

from e2e.support.bus import apply_topology
from e2e.support.sample_events import TOPICS
from messaging.pubsub import PubSub


@pytest.fixture
async def bus(bus_host: str, project: str) -> AsyncIterator[PubSub]:
    """The embedded bus with the topics of the sample events."""
    await apply_topology(project, TOPICS)
    bus = PubSub(project)
    yield bus
    await bus.close()
