"""What one audit compares, and what it knows about the bus."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

import asyncpg

from fern.audit.report import AuditReport, ShowProgress
from fern.client import AsyncClient, RequestRefused
from fern.errors import NotRunning
from fern.settings import Settings

ANSWER_SECONDS = 5.0

Event = asyncpg.Record  # a row of an outbox


@dataclass(frozen=True, slots=True)
class Backlog:
    """The messages of one subscription that no consumer has acknowledged, and the age of the oldest in seconds."""

    unacked: int
    leased: int
    oldest_seconds: float


@dataclass(frozen=True)
class AuditRun:
    """`report` is filled by the audit; the rest does not change."""

    databases: Mapping[str, asyncpg.Connection]
    report: AuditReport
    consumers: Mapping[str, Collection[str]]  # those of each topic
    backlog: (
        Mapping[str, Backlog] | None
    )  # of every subscription with unacknowledged messages; None if the bus did not say
    retention: timedelta  # how long the bus keeps a message that is not acknowledged
    dead: Mapping[tuple[str, str], str]  # the reason of each dead letter, by consumer and event
    dead_seen: Mapping[str, int]  # how many dead letters of each topic the audit has seen
    now: datetime
    overdue: timedelta
    end: UUID  # events with a later id are not compared
    progress: ShowProgress

    @property
    def overdue_before(self) -> datetime:
        """The time after which an event may still be on its way."""
        return self.now - self.overdue


async def read_backlog(bus: str | None) -> dict[str, Backlog] | None:
    """Ask the emulator; None if there is none or it does not answer. Pub/Sub itself does not say which messages it has."""
    if bus is None:
        return None
    try:
        async with AsyncClient(Settings.load(), ANSWER_SECONDS) as client:
            items = (await client.get(bus, "/backlog"))["items"]
    except (NotRunning, RequestRefused):
        return None
    return {
        item["subscription"]: Backlog(item["unacked"], item["leased"], item["oldest_seconds"])
        for item in items
        if item["unacked"]
    }
