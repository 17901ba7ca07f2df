"""Designs that do not remember which events they have handled: they remember nothing, a position, or a time."""

from e2e.experiments.quest.deltas.design import ADD, FOR_EVER, RETENTION, Design, Event, Semantics, Worker
from messaging.consumer import Verdict


class AddAlways(Design):
    """Adds the delta of every delivery, and inserts the row if the labour has none.

    Every second delivery of an event adds it again.
    """

    name = "add always"
    semantics = Semantics.AT_LEAST_ONCE
    remembers = "nothing"
    breaks = "Every delivery is added, and a bus delivers every message again that was not acknowledged."

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            add = "UPDATE total SET count = count + $2, seconds = seconds + $3 WHERE labour_id = $1"
            if await worker.connection.execute(add, *event.delta) == "UPDATE 0":
                await worker.connection.execute(ADD, *event.delta)
            await worker.between()
        return Verdict.ACK


class CountOnConflict(Design):
    """Adds with `INSERT … ON CONFLICT DO UPDATE SET count = count + 1`, which looks like deduplication.

    The conflict is on the row of the labour, not on the event: a second delivery conflicts, and is added.
    """

    name = "count + 1 on conflict"
    semantics = Semantics.AT_LEAST_ONCE
    remembers = "nothing"
    breaks = "The conflict is between two events of a labour, so it says nothing about two deliveries of an event."

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            await worker.connection.execute(ADD, *event.delta)
            await worker.between()
        return Verdict.ACK


class LastVersion(Design):
    """Keeps the sequence of the last event in the labour's row, and applies only events with a higher one.

    That is right for a state, where a late event is outdated. A late delta is not outdated: it is missing from the sum.
    """

    name = "last version"
    semantics = Semantics.AT_MOST_ONCE
    remembers = FOR_EVER
    breaks = "An event that arrives after a later one of its labour is taken for a duplicate, and its delta is lost."
    tables = "ALTER TABLE total ADD version integer NOT NULL DEFAULT 0"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            await worker.connection.execute(
                """
                INSERT INTO total (labour_id, count, seconds, version) VALUES ($1, $2, $3, $4)
                ON CONFLICT (labour_id) DO UPDATE SET
                    count = total.count + excluded.count, seconds = total.seconds + excluded.seconds, version = $4
                WHERE total.version < $4
                """,
                *event.delta,
                event.sequence,
            )
            await worker.between()
        return Verdict.ACK


class WatermarkOfTheSource(Design):
    """Keeps one number: the highest position of the source. Events at or below it are skipped.

    One early event makes all events before it look like duplicates, those of other labours included.
    """

    name = "source watermark"
    semantics = Semantics.AT_MOST_ONCE
    remembers = FOR_EVER
    breaks = "One event that arrives early hides all events before it, of every labour."
    tables = "CREATE TABLE watermark (source text PRIMARY KEY, position bigint NOT NULL)"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        async with worker.connection.transaction():
            await worker.checked()
            moved = await worker.connection.fetchval(
                """
                INSERT INTO watermark (source, position) VALUES ('labour', $1)
                ON CONFLICT (source) DO UPDATE SET position = $1 WHERE watermark.position < $1 RETURNING true
                """,
                event.position,
            )
            await worker.between()
            if moved:
                await worker.connection.execute(ADD, *event.delta)
        return Verdict.ACK


class ContiguousWatermark(Design):
    """Keeps the sequence of the last event in the labour's row, and applies only the next one. An event that comes too early is
    put back (nack) until the gap is closed.

    It needs a source that numbers the events of each labour without a gap, and one event that never comes stops its labour.
    """

    name = "contiguous watermark"
    semantics = Semantics.EFFECTIVELY_ONCE
    remembers = FOR_EVER
    breaks = "Right if the source leaves no gap; an event that never comes stops its labour."
    tables = "ALTER TABLE total ADD sequence integer NOT NULL DEFAULT 0"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        connection = worker.connection
        async with connection.transaction():
            await worker.checked()
            row = "INSERT INTO total (labour_id, count, seconds) VALUES ($1, 0, 0) ON CONFLICT DO NOTHING"
            await connection.execute(row, event.labour_id)
            last: int = await connection.fetchval(
                "SELECT sequence FROM total WHERE labour_id = $1 FOR UPDATE", event.labour_id
            )
            if event.sequence == last + 1:
                await connection.execute(
                    "UPDATE total SET count = count + $2, seconds = seconds + $3, sequence = $4 WHERE labour_id = $1",
                    *event.delta,
                    event.sequence,
                )
            await worker.between()
        return Verdict.NACK if event.sequence > last + 1 else Verdict.ACK


class TimeAsKey(Design):
    """Records the labour and the time of each event under a unique key, and adds the delta if the record is new.

    A time is not an identity: of two events of a labour in the same millisecond, the second is taken for a duplicate.
    """

    name = "time as the key"
    semantics = Semantics.AT_MOST_ONCE
    remembers = RETENTION
    breaks = "Of two events with the same time, the second is taken for a duplicate."
    tables = "CREATE TABLE handled (labour_id uuid, time timestamptz, PRIMARY KEY (labour_id, time))"
    forget = "TRUNCATE handled"

    async def handle(self, worker: Worker, event: Event) -> Verdict:
        record = "INSERT INTO handled (labour_id, time) VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING true"
        async with worker.connection.transaction():
            await worker.checked()
            is_new = await worker.connection.fetchval(record, event.labour_id, event.time)
            await worker.between()
            if is_new:
                await worker.connection.execute(ADD, *event.delta)
        return Verdict.ACK
