"""Samples of a running system: memory, file descriptors, connections, disk use, backlog and latency."""

import asyncio
import time
from dataclasses import dataclass, field

import asyncpg
import httpx
import psutil

from e2e.experiments.chaos.environment import ChaosWorld
from e2e.support.api import async_client

MB = 2**20

# `since` is the time of the sample before: only texts sent after that are measured.
_NOTIFICATION = """
    SELECT pg_database_size(current_database()) AS size, (SELECT count(*) FROM outbox) AS events,
        (SELECT count(*) FROM processed_event) AS claims,
        (SELECT count(*) FROM outbox WHERE published_at IS NULL) AS unpublished,
        (SELECT count(*) FROM notification WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')) AS unsettled,
        (SELECT 1000 * percentile_cont(0.5) WITHIN GROUP (ORDER BY extract(epoch FROM sent_at - uuid_extract_timestamp(event_id)))
            FROM notification WHERE sent_at > clock_timestamp() - make_interval(secs => $1)) AS latency
"""
_LABOUR = """
    SELECT pg_database_size(current_database()) AS size, (SELECT count(*) FROM outbox) AS events,
        (SELECT count(*) FROM processed_event) AS claims,
        (SELECT count(*) FROM outbox WHERE published_at IS NULL) AS unpublished,
        (SELECT count(*) FROM pg_stat_activity WHERE usename IN ('labour', 'notification')) AS connections
"""


@dataclass(slots=True)
class Sampler:
    """`samples` are series by name, as in `growth.MEASURES`; `times` are seconds since the start.

    Database size and rows are those added since the start, per event added since the start: both databases keep every event until
    retention deletes it, so that only what an event costs can grow.
    """

    chaos: ChaosWorld
    interval: float
    times: list[float] = field(default_factory=list)
    samples: list[dict[str, float]] = field(default_factory=list)
    events: int = 0
    _start: tuple[float, float, float] | None = None  # size, rows and events of the first sample
    _began: float = field(default_factory=time.monotonic)

    async def observe(self) -> None:
        """Sample until cancelled."""
        async with async_client(self.chaos.world.settings.url("pubsub-http"), timeout=2.0) as bus:
            while True:
                began = time.monotonic()
                sample = self._processes() | self._bus_file() | await self._databases() | await self._backlog(bus)
                if "waiting" in sample and "waiting on the bus" in sample:
                    sample["waiting"] += sample.pop("waiting on the bus")
                    self.times.append(began - self._began)
                    self.samples.append(sample)
                await asyncio.sleep(began + self.interval - time.monotonic())

    def _processes(self) -> dict[str, float]:
        found = {"load": psutil.getloadavg()[0] / (psutil.cpu_count() or 1)}
        for name, pid in self.chaos.world.pids.items():
            try:
                process = psutil.Process(pid)
                found |= {f"memory/{name}": process.memory_info().rss / MB, f"files/{name}": process.num_fds()}
            except psutil.Error:
                continue
        return found

    def _bus_file(self) -> dict[str, float]:
        folder = self.chaos.world.settings.home / "pubsub"
        return {"bus": sum(file.stat().st_size for file in folder.iterdir()) / MB}

    async def _databases(self) -> dict[str, float]:
        """Samples of both databases; empty if one does not answer."""
        try:
            async with asyncio.timeout(5):
                labour = await self._query("labour", _LABOUR)
                notification = await self._query("notification", _NOTIFICATION, self.interval)
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError):
            return {}
        both = (labour, notification)
        size, events = sum(row["size"] for row in both), sum(row["events"] for row in both)
        rows = events + sum(row["claims"] for row in both)
        self.events = events
        self._start = self._start or (size, rows, events)
        waiting = sum(row["unpublished"] for row in both) + notification["unsettled"]
        found = {"connections": float(labour["connections"]), "waiting": float(waiting)}
        if notification["latency"] is not None:
            found["latency"] = float(notification["latency"])
        if added := events - self._start[2]:
            found["database"] = (size - self._start[0]) / added / 1024
            found["rows"] = (rows - self._start[1]) / added
        return found

    async def _query(self, database: str, query: str, *arguments: object) -> asyncpg.Record:
        connection = await asyncpg.connect(self.chaos.server.dsn(database), timeout=2)
        try:
            [row] = await connection.fetch(query, *arguments)
            return row
        finally:
            connection.terminate()

    async def _backlog(self, bus: httpx.AsyncClient) -> dict[str, float]:
        try:
            items = (await bus.get("/backlog")).raise_for_status().json()["items"]
        except httpx.HTTPError:
            return {}
        waiting = [item["unacked"] for item in items if not item["subscription"].endswith(".dlq")]
        return {"waiting on the bus": float(sum(waiting))}
