"""Our processes and commands with the credentials of a machine on Google Cloud, over TLS, at a Pub/Sub that checks the token."""

import asyncio
import subprocess
import sys
from pathlib import Path

import pytest

from e2e.support.databases import fresh_databases
from e2e.support.google_cloud import TOKEN, google_cloud
from e2e.support.waiting import PATIENCE, until
from e2e.support.world import World
from fern.runtime.postgres import TemporaryServer
from fern.settings import PROJECT_ROOT, SERVICES, own
from pubsub_emulator.server import started

RELAYS = [f"{service}-relay" for service in SERVICES]
WORKERS = [*RELAYS, "notification-consumer"]
SENT = "notification WHERE labour_id = $1"


@pytest.mark.system
def test_topology_relay_consumer_drain_and_dead_letters_work_with_default_credentials(
    postgres: TemporaryServer, tmp_path: Path
) -> None:
    urls = asyncio.run(fresh_databases(postgres))
    with started(tmp_path / "bus") as emulator, google_cloud(tmp_path, emulator.target) as (api, variables):
        world = World(tmp_path / "world", urls, environment=variables)
        try:
            api.accepts = "another-token"
            world.start("labour-api", *WORKERS)
            until(lambda: api.refused > len(WORKERS), what="the first tokens are refused")
            api.accepts = TOKEN
            world.fern("topology", "apply")
            told = world.plan("Grace", "Alan")
            world.complete(told)
            until(lambda: world.count("notification", SENT, told.id) > 0, what="the consumer has handled the birth")

            assert world.stop("notification-consumer") == 0
            drained = world.plan("Edsger")
            world.complete(drained)
            until(
                lambda: world.count("labour", "outbox WHERE published_at IS NULL") == 0, what="the relay has published"
            )
            drain = [sys.executable, "-m", "notification", "consumer", "--drain"]
            environment = own(world.environment(), "notification-consumer")
            subprocess.run(drain, cwd=PROJECT_ROOT, env=environment, check=True, capture_output=True, timeout=PATIENCE)
            assert world.count("notification", SENT, drained.id) > 0
            assert world.fern("dlq", "ls")["groups"] == []
            assert {
                "CreateTopic",
                "CreateSubscription",
                "Publish",
                "StreamingPull",
                "Acknowledge",
                "Pull",
            } <= api.methods
        finally:
            world.kill_all()
