"""A second claim strategy: store the last sequence of each labour, and handle only the next one.

It needs one row for each labour and consumer, where `messaging.claims` needs one for each event. The rows are never deleted, so a
replay of any age has no second effect. It also applies the events of a labour in their order. The price:

- The consumer must receive every event of the source: a topic that it does not subscribe to is a gap that never closes.
- An event that is missing, or that fails, holds up the later events of its labour (and of no other one).
- Repeats are not counted, and no row tells when an event was handled.

An event without a sequence, from before there were any, is claimed in `messaging.claims`.

As in `messaging.claims`, an advisory lock keeps two consumers from handling the same labour at once, and lock and row belong to
the caller's transaction: a rollback, a lost connection or a crash leaves the watermarks as they were.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from uuid import UUID

import asyncpg

from messaging.claims import Claim, Claimable, ProcessedEvents, lock_key

_TRY_LOCKS = """
    SELECT source, subject FROM unnest($1::text[], $2::text[], $3::bigint[]) AS wanted (source, subject, key)
    WHERE pg_try_advisory_xact_lock(key)
"""

# Not part of the statement that locks: a later statement sees what the previous holder committed.
_READ = """
    SELECT source, subject, coalesce(sequence, 0) AS sequence
    FROM unnest($2::text[], $3::text[]) AS locked (source, subject)
    LEFT JOIN (SELECT * FROM watermark WHERE consumer = $1) AS known USING (source, subject)
"""

_ADVANCE = """
    INSERT INTO watermark (consumer, source, subject, sequence)
    SELECT $1, * FROM unnest($2::text[], $3::text[], $4::bigint[])
    ON CONFLICT (consumer, source, subject) DO UPDATE SET sequence = excluded.sequence
"""

Stream = tuple[str, str]  # source and subject


class Watermarks:
    def __init__(self) -> None:
        self._unnumbered = ProcessedEvents()

    async def claim(
        self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]
    ) -> dict[UUID, Claim]:
        """Try to claim events and return one outcome for each. Of one labour, the next sequences in a row are granted."""
        unnumbered = [event for event in events if event.envelope.sequence is None]
        outcomes = await self._unnumbered.claim(connection, consumer, unnumbered) if unnumbered else {}
        streams = defaultdict[Stream, list[Claimable]](list)
        for event in events:
            if event.envelope.sequence is not None:
                streams[event.envelope.source, event.envelope.subject].append(event)
        marks = await _lock(connection, consumer, list(streams))
        for stream, of_stream in streams.items():
            next_one = marks[stream] + 1 if stream in marks else None
            for event in sorted(of_stream, key=_sequence):
                if next_one is None:
                    outcomes[event.id] = Claim.HELD_ELSEWHERE
                elif _sequence(event) < next_one:
                    outcomes[event.id] = Claim.ALREADY_COMPLETED
                elif _sequence(event) > next_one:
                    outcomes[event.id] = Claim.TOO_EARLY
                else:
                    outcomes[event.id], next_one = Claim.GRANTED, next_one + 1
        return outcomes

    async def complete(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None:
        """Move the watermarks to the last of these events."""
        await self._unnumbered.complete(
            connection, consumer, [event for event in events if event.envelope.sequence is None]
        )
        last = dict[Stream, int]()
        for event in events:
            if event.envelope.sequence is not None:
                stream = (event.envelope.source, event.envelope.subject)
                last[stream] = max(event.envelope.sequence, last.get(stream, 0))
        if last:
            await connection.execute(_ADVANCE, consumer, *_columns(last), list(last.values()))

    async def release(self, connection: asyncpg.Connection, consumer: str, events: Sequence[Claimable]) -> None:
        """Release events without a sequence. Raises `RuntimeError` for others: a later event may already have had its effect."""
        if any(event.envelope.sequence is not None for event in events):
            raise RuntimeError("a reaction returned an event as early, but watermarks handle events in their order")
        await self._unnumbered.release(connection, consumer, events)


async def _lock(connection: asyncpg.Connection, consumer: str, streams: Sequence[Stream]) -> dict[Stream, int]:
    """The watermarks of the streams that no other consumer holds."""
    keys = [lock_key(consumer, ":".join(stream)) for stream in streams]
    locked = await connection.fetch(_TRY_LOCKS, *_columns(streams), keys)
    rows = await connection.fetch(_READ, consumer, *_columns([(row["source"], row["subject"]) for row in locked]))
    return {(row["source"], row["subject"]): row["sequence"] for row in rows}


def _columns(streams: Iterable[Stream]) -> tuple[list[str], list[str]]:
    listed = list(streams)
    return [source for source, _ in listed], [subject for _, subject in listed]


def _sequence(event: Claimable) -> int:
    assert event.envelope.sequence is not None  # noqa: S101
    return event.envelope.sequence
