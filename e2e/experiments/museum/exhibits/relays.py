"""Mistakes of a relay."""

from collections.abc import Sequence

from sqlalchemy import text
from sqlalchemy.ext.asyncio import AsyncConnection

from e2e.experiments.museum.exhibit import exhibit
from e2e.experiments.museum.scenarios import relays as scenarios
from messaging.bus import Publisher
from messaging.publishing import Row
from messaging.relay import AFTER_READ, Pass, Relay

NOT_PUBLISHED, SECOND_NEITHER = (f"lost: event {number} was committed and never reached the bus" for number in (1, 2))
OUT_OF_ORDER = "out-of-order: event 1 reached the bus after event 2"
BEHIND = "held-up: event 2 waits behind event 1 of another labour, which the bus rejects"


@exhibit("mark before publish", scenarios.a_relay_dies_on_its_way_to_the_bus, Relay, 2, NOT_PUBLISHED, SECOND_NEITHER)
class MarkBeforePublish(Relay):
    """The relay marked its rows as published, committed, and then published them. It looks right because no event is
    ever published twice, and no transaction is open during a call. But a relay that crashes after the commit leaves
    rows that are marked and were never published.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            rows = await read(connection, "published_at IS NULL ORDER BY position FOR UPDATE SKIP LOCKED")
            await mark(connection, rows)
        await publish(self._publisher, rows)
        return Pass(len(rows))


@exhibit("poll by greatest id", scenarios.an_earlier_number_commits_later, Relay, 2, NOT_PUBLISHED)
class PollByGreatestId(Relay):
    """The relay remembered the greatest id that it had published and queried for greater ones. It looks right because
    ids only increase, and the query needs no extra column and no index. But ids increase in the order of the inserts,
    not of the commits: a transaction that took its id early and commits late becomes visible when the relay is already
    past its id.
    """

    greatest = 0

    async def run_once(self) -> Pass:
        async with self._engine.connect() as connection:
            rows = await read(connection, f"position > {self.greatest} ORDER BY position")
        await publish(self._publisher, rows)
        self.greatest = max([self.greatest, *(row.position for row in rows)])
        return Pass(len(rows))


@exhibit("no ordering across relays", scenarios.a_slow_relay_and_a_quick_one, Relay, 3, OUT_OF_ORDER)
class NoOrderingAcrossRelays(Relay):
    """Several relays shared the outbox by locking rows and skipping those that another relay had locked. It looks right
    because no row is published by two relays, and each relay publishes its rows in order. But the skipped row and the
    next one may belong to the same labour, and the second relay may be faster.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            oldest = f"published_at IS NULL ORDER BY position LIMIT {self._batch_size} FOR UPDATE SKIP LOCKED"
            rows = await read(connection, oldest)
            await publish(self._publisher, rows)
            await mark(connection, rows)
        return Pass(len(rows))


@exhibit("retry until it works", scenarios.the_bus_rejects_an_event, Relay, 7, BEHIND)
class RetryUntilItWorks(Relay):
    """The relay published row by row, and retried each row until the bus accepted it. It looks right because no row is
    skipped, so the order is kept. But a message that the bus rejects is rejected every time, and the events of all
    labours wait behind it.
    """

    async def run_once(self) -> Pass:
        async with self._engine.begin() as connection:
            rows = await read(connection, "published_at IS NULL ORDER BY position FOR UPDATE")
            await publish(self._publisher, rows)  # raises at a rejection; the next pass begins with the same row
            await mark(connection, rows)
        return Pass(len(rows))


# ── shared by the relays above ──


async def read(connection: AsyncConnection, condition: str) -> list[Row]:
    columns = "position, topic, ordering_key, CAST(attributes AS text), payload, attempts"
    return [Row(*row) for row in await connection.execute(text(f"SELECT {columns} FROM outbox WHERE {condition}"))]


async def publish(bus: Publisher, rows: Sequence[Row]) -> None:
    await AFTER_READ()
    for row in rows:
        await bus.publish(row.topic, [row.outgoing()])


async def mark(connection: AsyncConnection, rows: Sequence[Row]) -> None:
    for row in rows:
        await connection.execute(text(f"UPDATE outbox SET published_at = now() WHERE position = {row.position}"))
