"""How soon the system has recovered: from the end of a fault until the backlog is as old as before it.

The age of the backlog is that of the oldest thing that waits: an event in an outbox that is not published, a message on the bus
that is not acknowledged, a text that is not settled. It is sampled twice a second. The system has recovered at the first of the
samples that are all good for `STEADY` seconds. A sample is good if the backlog is not older than it was before the fault, or
than `TOLERANCE`: whatever a fault left behind is older than that before the time of `STEADY` is over.

Faults come one at a time, each after the system has recovered from the one before.
"""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from dataclasses import dataclass
from statistics import median

import asyncpg
import httpx

from e2e.experiments.chaos.environment import ChaosWorld
from e2e.experiments.chaos.fault_injector import LABELS, FaultInjector
from e2e.experiments.chaos.schedule import KINDS, FaultKind, ScheduledFault
from e2e.support.api import async_client
from fern.settings import CONSUMERS, PROJECT_ROOT

SAMPLE_SECONDS = 0.5
TOLERANCE = 1.0  # seconds
STEADY = 3.0  # seconds
RECOVERED_WITHIN = 180.0  # seconds, after which the run has a finding
PAGE = PROJECT_ROOT / "docs" / "guarantees.md"
BEGIN, END = "<!-- begin: written by `fern chaos --recovery --write-docs` -->", "<!-- end -->"

_UNPUBLISHED = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - coalesce(replayed_at, recorded_at))), 0)::float8 FROM outbox
    WHERE published_at IS NULL AND discarded_at IS NULL AND parked_at IS NULL
"""
_UNSETTLED = """
    SELECT coalesce(max(extract(epoch FROM clock_timestamp() - created_at)), 0)::float8 FROM notification
    WHERE state IN ('PENDING', 'SENDING', 'IN_DOUBT')
"""
_QUERIES = {"labour": [_UNPUBLISHED], "notification": [_UNPUBLISHED, _UNSETTLED]}


@dataclass(frozen=True, slots=True)
class Recovery:
    """`seconds` from the end of the fault; if not `recovered`, the time after which the wait ended."""

    kind: FaultKind
    target: str
    seconds: float
    recovered: bool = True

    @property
    def what(self) -> str:
        return f"{self.target} {LABELS[self.kind][0]}"


Samples = Sequence[tuple[float, float | None]]  # when, and the age of the backlog in seconds; None if it is unknown


class BacklogAge:
    """Samples the age of the backlog, in seconds; None while a database or the bus does not answer."""

    def __init__(self, chaos: ChaosWorld) -> None:
        self._server, self._bus = chaos.server, async_client(chaos.world.settings.url("pubsub-http"), timeout=1.0)
        self.samples = list[tuple[float, float | None]]()

    async def observe(self) -> None:
        """Sample until cancelled."""
        while True:
            began = time.monotonic()
            self.samples.append((began, await self._sample()))
            await asyncio.sleep(began + SAMPLE_SECONDS - time.monotonic())

    async def _sample(self) -> float | None:
        try:
            async with asyncio.timeout(2.0):
                ages = await asyncio.gather(*map(self._waiting_in, _QUERIES), self._waiting_on_the_bus())
        except (OSError, TimeoutError, asyncpg.PostgresError, asyncpg.InterfaceError, httpx.HTTPError):
            return None
        return max(ages)

    async def _waiting_in(self, database: str) -> float:
        """Query as the superuser, to whom no connection limit applies."""
        connection = await asyncpg.connect(self._server.dsn(database), timeout=2)
        try:
            ages: list[float] = [await connection.fetchval(query) for query in _QUERIES[database]]
            return max(ages)
        finally:
            connection.terminate()

    async def _waiting_on_the_bus(self) -> float:
        items = (await self._bus.get("/backlog")).raise_for_status().json()["items"]
        return max([0.0, *(item["oldest_seconds"] or 0.0 for item in items if _is_a_consumers(item["subscription"]))])

    async def close(self) -> None:
        await self._bus.aclose()


def _is_a_consumers(subscription: str) -> bool:
    return subscription.partition(".")[0] in CONSUMERS and not subscription.endswith(".dlq")


async def measure(
    chaos: ChaosWorld, injector: FaultInjector, actions: Sequence[ScheduledFault]
) -> AsyncIterator[Recovery]:
    """Inject the faults one by one. Those that took no effect are left out."""
    age = BacklogAge(chaos)
    observing = asyncio.create_task(age.observe(), name="the age of the backlog")
    try:
        await asyncio.sleep(STEADY)
        for action in actions:
            before = [sample or 0.0 for at, sample in age.samples if at > time.monotonic() - STEADY]
            took_effect = await injector.inject(action)
            ended = time.monotonic()
            recovered_at = await _until_steady(age, ended, max([TOLERANCE, *before]))
            seconds = (recovered_at or time.monotonic()) - ended
            if took_effect:
                yield Recovery(action.kind, action.target, round(seconds, 1), recovered_at is not None)
    finally:
        observing.cancel()
        await asyncio.gather(observing, return_exceptions=True)
        await age.close()


async def _until_steady(age: BacklogAge, since: float, good: float) -> float | None:
    """When the system had recovered; None if it did not in time."""
    while time.monotonic() < since + RECOVERED_WITHIN:
        await asyncio.sleep(SAMPLE_SECONDS / 2)
        if (at := recovered_at(age.samples, since, good)) is not None:
            return at
    return None


def recovered_at(samples: Samples, since: float, good: float) -> float | None:
    """When the first sample was taken that begins `STEADY` seconds of good samples; None if there is none yet.

    `since` itself, if no sample after it was bad.
    """
    bad = [at for at, age in samples if at >= since and (age is None or age > good)]
    fine = [at for at, _ in samples if at > max([since, *bad])]
    if not fine or fine[-1] - fine[0] < STEADY:
        return None
    return fine[0] if bad else since


def table(recoveries: Iterable[Recovery]) -> str:
    """A Markdown table: for each kind the number of faults, and the median and the worst time in seconds."""
    by_kind = defaultdict[str, list[Recovery]](list)
    for recovery in recoveries:
        by_kind[recovery.kind].append(recovery)
    lines = ["| kind of fault | faults | median s | worst s |", "|---|---:|---:|---:|"]
    for kind in KINDS:
        if found := by_kind[kind]:
            seconds = [one.seconds for one in found]
            worst = f"{max(seconds):.1f}" if all(one.recovered for one in found) else f"over {max(seconds):.0f}"
            lines.append(f"| {LABELS[kind][1]} | {len(found)} | {median(seconds):.1f} | {worst} |")
    return "\n".join(lines)


def write_docs(recoveries: Iterable[Recovery], command: str) -> None:
    before, _, rest = PAGE.read_text().partition(BEGIN)
    _, _, after = rest.partition(END)
    section = f"```sh\n{command}\n```\n\n{table(recoveries)}"
    PAGE.write_text(f"{before}{BEGIN}\n\n{section}\n\n{END}{after}")
