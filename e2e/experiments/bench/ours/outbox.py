"""Fills our outbox, through the unit of work as every service does."""

from datetime import UTC, datetime
from itertools import repeat
from typing import Any

from uuid_utils.compat import uuid7

from contracts.events import LabourCompleted
from e2e.experiments.bench.contexts import contexts
from e2e.experiments.bench.program import Stopwatch
from messaging.database import create_engine
from messaging.unit_of_work import UnitOfWork

CHUNK = 1000  # events of one transaction
KEYS = 200  # labours that the events are about, in turn


async def measure(*, url: str, count: int, chunk: int = CHUNK, traced: bool = False) -> dict[str, Any]:
    """Fill the outbox with `count` events. With `traced`, every event has a trace context."""
    engine = create_engine(url, process="bench")
    labours = [uuid7() for _ in range(KEYS)]
    traceparents = contexts() if traced else repeat(None)
    watch, now = Stopwatch(), datetime.now(UTC)
    for start in range(0, count, chunk):
        async with UnitOfWork(engine, source="labour", committed=lambda: None) as uow:
            for number in range(start, min(start + chunk, count)):
                labour = labours[number % KEYS]
                event = LabourCompleted(labour_id=labour, roster_version=2, mother_name="Ada", completed_at=now)
                uow.emit(event, key=str(labour), at=now, traceparent=next(traceparents))
    await engine.dispose()
    return watch.read(count)
