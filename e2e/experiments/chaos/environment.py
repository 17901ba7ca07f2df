"""The system that the faults hit: two replicas of the main processes, proxies before PostgreSQL, and a disk that can be full."""

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from e2e.experiments.chaos.database_faults import own_disk
from e2e.experiments.chaos.schedule import LEASE, QUARANTINE, TIMEOUT
from e2e.support.databases import migrated_server, service_urls, through
from e2e.support.tcp_proxy import TcpProxy, tcp_proxy
from e2e.support.world import World, running_world
from fern.runtime.postgres import TemporaryServer

REPLICATED = ("labour-api", "labour-relay", "notification-consumer", "notification-dispatcher")
ENVIRONMENT = {
    "SMS_LEASE_SECONDS": str(LEASE),
    "SMS_TIMEOUT_SECONDS": str(TIMEOUT),
    "SMS_QUARANTINE_SECONDS": str(QUARANTINE),
}


@dataclass(frozen=True)
class ChaosWorld:
    """The world's own `urls` lead to PostgreSQL without a proxy: observers see it when the services do not."""

    world: World
    server: TemporaryServer
    proxies: Mapping[str, TcpProxy]
    disk: Path | None  # where PostgreSQL's data is; None if it has no file system of its own


@contextmanager
def chaos_world(*, fsync: bool = False) -> Iterator[ChaosWorld]:
    """Start a system on a PostgreSQL of its own, which with `fsync` also vacuums its tables. All is deleted afterwards."""
    with ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fern-world-")))
        os.chmod(directory, 0o711)  # so that the server's user reaches its data
        disk = stack.enter_context(own_disk(directory))
        server = stack.enter_context(migrated_server(disk or directory, fsync=fsync))
        urls = service_urls(server)
        target = (server.host, server.port)
        proxies = {service: stack.enter_context(tcp_proxy(target)) for service in urls}
        behind = {f"{service.upper()}_DATABASE_URL": through(proxies[service], url) for service, url in urls.items()}
        settings = {**ENVIRONMENT, **behind}
        world = running_world(directory / "home", urls, twice=REPLICATED, environment=settings)
        yield ChaosWorld(stack.enter_context(world), server, proxies, disk)
