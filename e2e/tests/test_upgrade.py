"""A rolling upgrade from the release before: its processes work on the new schema, and are replaced one by one under load."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from e2e.support import previous_release
from e2e.support.background_load import BackgroundLoad
from e2e.support.databases import connect, owner_url
from e2e.support.waiting import until
from e2e.support.world import World
from fern.runtime.jobs import migrate
from fern.runtime.postgres import TemporaryServer, hand_over
from fern.settings import PROJECT_ID, SERVICES
from fern.topology import Declared, apply

# As docs/operations.md says: consumers before producers.
ORDER = (
    "labour-consumer",
    "labour-statistics",
    "notification-consumer",
    "notification-dispatcher",
    "notification-relay",
    "notification-api",
    "labour-relay",
    "labour-api",
)


@pytest.fixture
def code(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return previous_release.checkout(tmp_path_factory.mktemp("release-before"))


async def _empty_databases(server: TemporaryServer) -> dict[str, str]:
    admin = await connect(server.dsn())
    try:
        for service in SERVICES:
            await admin.execute(f"CREATE DATABASE {service}_before OWNER {service}")
    finally:
        await admin.close()
    return {service: server.url(f"{service}_before", service) for service in SERVICES}


@pytest.fixture
def older_world(code: Path, postgres: TemporaryServer, tmp_path: Path) -> Iterator[World]:
    """Every process of a service is of the release before, and so is the schema."""
    urls = asyncio.run(_empty_databases(postgres))
    for service, url in urls.items():
        previous_release.migrate(code, service, url)
    world = World(tmp_path / "world", urls)
    try:
        world.start("sms-sandbox", "pubsub")
        world.use_bus()
        apply(Declared.load(), PROJECT_ID)
        for name in world.services:
            world.spawn(name, previous_release.environment(code))
        for name in world.services:
            until(lambda: world.is_dead(name) or world.is_healthy(name), what=f"{name} is healthy")  # noqa: B023
            assert not world.is_dead(name), world.settings.log(name).read_text()[-3000:]
        yield world
    finally:
        world.kill_all()


def revision(world: World, service: str) -> str:
    return str(world.sql(service, "SELECT version_num FROM alembic_version")[0][0])


def test_processes_of_the_release_before_work_on_the_new_schema_and_are_replaced_one_by_one_without_a_lost_or_doubled_text(
    older_world: World, postgres: TemporaryServer
) -> None:
    world = older_world
    assert {service: revision(world, service) for service in SERVICES} == previous_release.MIGRATIONS
    stopped = world.plan("Alan")
    load = BackgroundLoad(world)
    try:
        until(lambda: len(load.labours) > 2, what="the release before works")
        for service, url in world.urls.items():
            asyncio.run(hand_over(postgres.dsn(), f"{service}_before", service))
            migrate(service, owner_url(url))
        before = len(load.labours)
        until(lambda: len(load.labours) > before + 2, what="the release before works on the new schema")
        stop = {"from": stopped.people["Alan"], "body": "STOP"}
        world.sms_sandbox.post("/sandbox/inbound", json=stop).raise_for_status()
        refused = "consent WHERE phone = $1 AND state = 'REFUSED'"
        until(lambda: world.count("notification", refused, stop["from"]) == 1, what="the new table has the STOP")
        for name in ORDER:
            assert world.stop(name) == 0
            world.start(name)
            replaced = len(load.labours)
            until(lambda: len(load.labours) > replaced, what=f"requests go on after {name}")  # noqa: B023
        world.complete(stopped)
    finally:
        load.stop()

    ids = [labour.id for labour in load.labours]
    unsent = "notification WHERE labour_id = ANY($1) AND state NOT IN ('SENT', 'DELIVERED')"
    told = "notification WHERE labour_id = ANY($1)"
    until(lambda: world.count("notification", told, ids) == len(ids), what="every birth is in the ledger")
    until(lambda: world.count("notification", unsent, ids) == 0, what="everyone is told")
    assert {len(world.messages(phone)) for labour in load.labours for phone in labour.people.values()} == {1}
    until(lambda: world.count("notification", "notification WHERE labour_id = $1 AND state = 'FAILED'", stopped.id))
    assert world.texts(stopped) == {"Alan": []}
    for labour in (*load.labours, stopped):
        world.until_nothing_is_lost_or_doubled(labour)
    assert world.fern("dlq", "ls")["groups"] == []
