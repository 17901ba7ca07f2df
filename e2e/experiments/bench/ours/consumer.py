"""Our consumer handles events that each notify two people. Messages come from memory, in batches as the receiver makes them."""

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import repeat
from typing import Any
from uuid import UUID

import msgspec
from uuid_utils.compat import uuid7

from contracts.events import Event, LabourCompleted, SubscriberAdded
from e2e.experiments.bench.contexts import contexts
from e2e.experiments.bench.program import Stopwatch
from messaging.bus import Message
from messaging.consumer import Verdict
from messaging.database import create_engine, ping
from messaging.envelope import attributes
from messaging.pubsub import PubSub
from messaging.receiver import Receiver
from messaging.unit_of_work import UnitOfWork
from notification.consumer import NAME, create_consumer

DEFAULTS: dict[str, Any] = Receiver.__init__.__kwdefaults__ or {}
BATCH, WORKERS = int(DEFAULTS["batch_size"]), int(DEFAULTS["workers"])


def message(event: Event, traceparent: str | None = None) -> Message:
    """The event as the bus delivers it."""
    event_id, key = uuid7(), str(event.labour_id)
    about = {"type": event.type, "version": event.version, "subject": key, "time": datetime.now(UTC)}
    context = attributes(id=event_id, source="labour", traceparent=traceparent, **about)  # type: ignore[arg-type]
    return Message(f"{NAME}.{event.type}", str(event_id), str(event_id), msgspec.json.encode(event), context, 1)


def subscribe(labour_id: UUID) -> list[Message]:
    """Two people join the roster of a labour."""
    people = ((1, "Grace", "+12025550101"), (2, "Edsger", "+12025550102"))
    return [
        message(SubscriberAdded(labour_id=labour_id, roster_version=number, person_id=uuid7(), name=name, phone=phone))
        for number, name, phone in people
    ]


def complete(labour_id: UUID, traceparent: str | None = None) -> Message:
    now = datetime.now(UTC)
    event = LabourCompleted(labour_id=labour_id, roster_version=2, mother_name="Ada", completed_at=now)
    return message(event, traceparent)


async def measure(
    *, url: str, project: str, labours: Sequence[str], subscribes: bool = False, traced: bool = False
) -> dict[str, Any]:
    """Handle one completion of each labour, with a trace context if `traced`; with `subscribes`, the events that fill its
    roster.
    """
    engine = create_engine(url, process="bench")
    bus = PubSub(project)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=lambda: None)

    consumer = create_consumer(units_of_work, bus, lambda: None)
    ids = [UUID(labour) for labour in labours]
    traceparents = contexts() if traced else repeat(None)
    if subscribes:
        messages = [one for labour in ids for one in subscribe(labour)]
    else:
        messages = [complete(labour, next(traceparents)) for labour in ids]
    batches = iter([messages[start : start + BATCH] for start in range(0, len(messages), BATCH)])
    verdicts = list[Verdict]()

    async def work() -> None:
        for batch in batches:
            verdicts.extend(await consumer.handle(batch))

    await asyncio.gather(*(ping(engine) for _ in range(WORKERS)))  # connects
    watch = Stopwatch()
    await asyncio.gather(*(work() for _ in range(1 if subscribes else WORKERS)))
    result = watch.read(verdicts.count(Verdict.ACK))
    await bus.close()
    await engine.dispose()
    return result
