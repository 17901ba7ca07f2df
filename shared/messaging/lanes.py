"""Finds the lanes that have rows to publish, without scanning again the rows that are known to be published or discarded.

The index of pending rows keeps an entry for every row that was published after the oldest open snapshot was taken, because that
snapshot still sees the row as pending. A query that starts at the beginning of the index gets slower and slower while an old
transaction is open. So `Lanes` remembers a bound for each lane and looks above it: all rows of the lane up to its bound are
published or discarded, and no transaction can commit another one there.

Positions are taken by inserts and become visible by commits, so a lower position may become visible after a higher one. An insert
locks the table (ROW EXCLUSIVE) before it takes a position, and the lock is released after the commit. Once all transactions that
held this lock at some moment have ended, every position that was visible at that moment is settled: no lower one can appear. A
bound never exceeds the settled position and never reaches a pending row, not even a parked one, so it hides no earlier row of a
key.

A published row that is made pending again (a replay) is below the bound. A sweep, which ignores the bounds, finds it. There is a
sweep in every `sweep_interval`, and fewer if sweeps would take more than 2 % of the time.
"""

import time

import asyncpg

from messaging.outbox import LANES

SETTLE_INTERVAL = 0.05  # seconds; reading all locks of the server costs about as much as a look
SWEEP_SHARE = 0.02

_ALL = list(range(LANES))

PENDING = "o.published_at IS NULL AND o.discarded_at IS NULL"

# A row is due when neither it nor an earlier row of its key is parked or waiting for its next attempt.
DUE = f"""
    {PENDING} AND NOT EXISTS (
        SELECT 1 FROM outbox held
        WHERE held.published_at IS NULL AND held.discarded_at IS NULL AND held.attempts > 0
          AND held.ordering_key = o.ordering_key AND held.position <= o.position
          AND (held.parked_at IS NOT NULL OR held.next_attempt_at > clock_timestamp()))
"""  # noqa: S608

# The rows of a lane above its bound, in order. Written like this, only the index of pending rows offers this order. With
# `o.lane = l.lane` the planner may prefer the primary key, which begins with all rows that were ever published.
ABOVE_BOUND = "(o.lane, o.position) > (l.lane, l.bound) AND o.lane <= l.lane"
IN_ORDER = "o.lane, o.position"

# The first pending row of each lane. It is due if it was never tried; otherwise a row of another key may be.
_LOOK = f"""
    SELECT first.position, CASE WHEN first.attempts > 0 THEN EXISTS (
        SELECT 1 FROM outbox o WHERE o.lane = l.lane AND o.position >= first.position AND {DUE})
        ELSE first.position IS NOT NULL END AS due
    FROM unnest($1::smallint[], $2::bigint[]) WITH ORDINALITY AS l (lane, bound, number)
    LEFT JOIN LATERAL (
        SELECT o.position, o.attempts FROM outbox o WHERE {ABOVE_BOUND} AND {PENDING} ORDER BY {IN_ORDER} LIMIT 1
    ) AS first ON true
    ORDER BY l.number
"""  # noqa: S608

# The locks are read after the snapshot of the statement was taken.
_WRITERS = """
    SELECT coalesce((SELECT max(position) FROM outbox), 0) AS newest, ARRAY(
        SELECT virtualtransaction FROM pg_locks
        WHERE locktype = 'relation' AND relation = 'outbox'::regclass AND mode = 'RowExclusiveLock'
          AND database = (SELECT oid FROM pg_database WHERE datname = current_database())) AS writers
"""


class Lanes:
    """Call `due` and `settle` one after the other, each from one task at a time."""

    def __init__(self, *, sweep_interval: float) -> None:
        self._sweep_interval = sweep_interval
        self.forget()

    def forget(self) -> None:
        """Start again without bounds, for example after a failure of the database: it may not be the same server any more."""
        self.bounds = [0] * LANES
        self._settled = self._newest = 0
        self._writers = set[str]()
        self._settle_at = self._sweep_at = 0.0

    async def due(self, connection: asyncpg.Connection) -> list[int]:
        """The lanes that have rows to publish."""
        started, settled = time.monotonic(), self._settled
        sweep = started >= self._sweep_at
        found = await connection.fetch(_LOOK, _ALL, [0] * LANES if sweep else self.bounds)
        if sweep:
            ended = time.monotonic()
            self._sweep_at = ended + max(self._sweep_interval, (ended - started) / SWEEP_SHARE)
        self.bounds = [settled if position is None else min(position - 1, settled) for position, _ in found]
        return [lane for lane, (_, due) in enumerate(found) if due]

    async def settle(self, connection: asyncpg.Connection) -> None:
        """Raise the settled position, if all transactions have ended that could still commit a row below it."""
        if time.monotonic() < self._settle_at:
            return
        self._settle_at = float("inf")  # until this is done
        try:
            [(newest, writers)] = await connection.fetch(_WRITERS)
        finally:
            self._settle_at = time.monotonic() + SETTLE_INTERVAL
        self._writers &= set(writers)
        if not self._writers:
            self._settled, self._newest, self._writers = self._newest, newest, set(writers)
        if not self._writers:
            self._settled = self._newest
