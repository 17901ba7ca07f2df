"""One design under the load: all texts wait, then two dispatchers send until the two other labours have theirs."""

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from uuid_utils.compat import uuid7

import sms_sandbox
from e2e.support.databases import fresh_database
from e2e.support.waiting import eventually
from fern.runtime.postgres import TemporaryServer
from messaging.database import create_engine
from messaging.unit_of_work import UnitOfWork
from notification.delivery.dispatcher import Dispatcher
from notification.delivery.twilio import Twilio
from notification.domain.notification import Limits, Notification

Post = Callable[[UnitOfWork, Sequence[Notification]], Awaitable[object]]

PEOPLE = 3  # of each of the two other labours
DISPATCHERS = 2
NO_CALLBACK = "http://127.0.0.1:9/"  # nothing listens there
SENDER = "+15005550006"
BIRTH, ANNOUNCED = "labour.completed", "labour.announced"

# No row until every person has the text.
_WAITED = """
    SELECT extract(epoch FROM max(sent_at) - $2)::float8 AS seconds, (
        SELECT count(*) FROM notification AS other WHERE other.labour_id = $3
            AND other.sending_at < (SELECT max(sending_at) FROM notification WHERE labour_id = $1)) AS behind
    FROM notification WHERE labour_id = $1 HAVING count(*) = count(sent_at)
"""


@dataclass(frozen=True, slots=True)
class Load:
    """`rate` is in texts a second; `in_flight` is how many of them a dispatcher takes at once at most."""

    people: int = 50
    announcements: int = 20
    rate: float = 10.0
    in_flight: int = 50


@dataclass(frozen=True, slots=True)
class Waited:
    """`seconds` until the last person had the text; `behind` texts of the first labour were taken before."""

    seconds: float
    behind: int


async def wait_times(post: Post, load: Load, postgres: TemporaryServer) -> dict[str, Waited]:
    """How long a birth and an announcement of other labours wait, by event type."""
    engine = create_engine(await fresh_database(postgres, "notification"), process="fairness", connect_timeout=60)

    def units_of_work() -> UnitOfWork:
        return UnitOfWork(engine, source="notification", committed=lambda: None)

    loud, people = uuid7(), [uuid7() for _ in range(load.people)]
    others = {ANNOUNCED: uuid7(), BIRTH: uuid7()}
    for sequence in range(load.announcements):
        async with units_of_work() as uow:
            await post(uow, _texts(ANNOUNCED, loud, people, sequence))
    for event_type, labour_id in others.items():
        async with units_of_work() as uow:
            await post(uow, _texts(event_type, labour_id, [uuid7() for _ in range(PEOPLE)], 1))

    with tempfile.TemporaryDirectory(prefix="fern-fairness-") as directory:
        async with sms_sandbox.running(Path(directory)) as sandbox:
            account = {"account_sid": "AC" + "0" * 32, "auth_token": "fairness", "sender": SENDER}
            provider, stop = Twilio(**account, base_url=sandbox.url, timeout=10.0), asyncio.Event()
            limits = Limits(SENDER, load.rate)
            options = {"callback_url": NO_CALLBACK, "in_flight": load.in_flight, "poll_interval": 0.1, "limits": limits}
            dispatchers = [Dispatcher(units_of_work, provider, **options) for _ in range(DISPATCHERS)]  # type: ignore[arg-type]
            async with units_of_work() as uow:
                began = await uow.connection.fetchval("SELECT clock_timestamp()")
            running = [asyncio.create_task(one.run(stop)) for one in dispatchers]

            async def waited(labour_id: UUID) -> Waited | None:
                async with units_of_work() as uow:
                    row = await uow.connection.fetchrow(_WAITED, labour_id, began, loud)
                return Waited(**row) if row else None

            try:
                seen = {}
                for event_type, labour_id in others.items():
                    seen[event_type] = await eventually(lambda labour_id=labour_id: waited(labour_id), seconds=3600)  # type: ignore[misc]
            finally:
                stop.set()
                await asyncio.gather(*running)
                await provider.close()
                await engine.dispose()
    return {event_type: found for event_type, found in seen.items() if found}


def _texts(event_type: str, labour_id: UUID, people: Sequence[UUID], sequence: int) -> list[Notification]:
    event_id = uuid7()
    return [
        Notification(
            id=(new_id := uuid7()),
            event_id=event_id,
            event_type=event_type,
            labour_id=labour_id,
            person_id=person_id,
            person_name="Grace",
            phone=f"+1202555{number:04}",
            body=f"{event_type} #{new_id.hex[-8:]}",
            segments=1,
            sequence=sequence,
        )
        for number, person_id in enumerate(people, 100)
    ]
