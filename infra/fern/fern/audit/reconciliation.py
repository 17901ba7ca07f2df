"""Compares what the two services have recorded about the same events, while both go on writing.

Everything is read in the order of ids, one chunk at a time, so memory does not grow with the number of events. The comparison is
SQL: the ids from one database are parameters of a query in the other, which returns the differences only.

A running system causes no false finding. Of each chunk the outbox is read first and its consumer second, in one snapshot, so a
missing claim was still missing after its event had been published; a claim without an event is looked up once more in the outbox;
and what is on its way counts as waiting until it is overdue, and as late while something can still bring it: `arrival`. Not
compared: effects whose cause retention may have deleted, and events created after the audit began.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import asyncpg

from fern.audit.arrival import judge_publishing, judge_unclaimed
from fern.audit.run import AuditRun, Event
from fern.settings import CONSUMERS
from messaging.retention import first_id

CHUNK = 5000  # ids of one list held at a time
STATUS_RANKS = {
    "notification.superseded": 0,
    "notification.sent": 1,
    "notification.delivered": 2,
    "notification.failed": 2,
}

_END_OF_CHUNK = "SELECT id FROM ({}) AS list WHERE id > $1 ORDER BY id OFFSET $2 LIMIT 1"

_OLDEST_KEPT = "SELECT coalesce(min(published_at) FILTER (WHERE replayed_at IS NULL), min(recorded_at)) FROM outbox"

_EVENTS = """
    SELECT event_id, topic, ordering_key, coalesce(replayed_at, recorded_at) AS since, published_at, parked_at, discarded_at,
        attempts, next_attempt_at, last_error,
        published_at IS NULL AND EXISTS (SELECT 1 FROM outbox parked WHERE parked.ordering_key = event.ordering_key
            AND parked.position < event.position AND parked.parked_at IS NOT NULL AND parked.published_at IS NULL
            AND parked.discarded_at IS NULL) AS is_behind_a_parked,
        body ->> 'labour_id' AS labour_id, body ->> 'person_id' AS person_id, body ->> 'notification_id' AS notification_id,
        CASE WHEN jsonb_typeof(body -> 'roster_version') = 'number' THEN (body -> 'roster_version')::int END AS roster_version
    FROM (SELECT *, CASE WHEN payload IS JSON THEN payload::jsonb END AS body FROM outbox) AS event
    WHERE event_id > $1 AND event_id <= $2
"""

_CLAIMS = """
    SELECT count(*) FILTER (WHERE status = 'COMPLETED') AS completed, coalesce(sum(deliveries - 1), 0)::int AS repeats,
        coalesce(array_agg(wanted.event_id) FILTER (WHERE status IS NULL), '{}') AS unclaimed,
        coalesce(array_agg(wanted.event_id) FILTER (WHERE status = 'PROCESSING'), '{}') AS processing,
        coalesce(array_agg(wanted.event_id) FILTER (WHERE status = 'DISCARDED'), '{}') AS discarded
    FROM unnest($2::uuid[]) AS wanted (event_id)
    LEFT JOIN processed_event claim ON claim.consumer = $1 AND claim.event_id = wanted.event_id
"""

_CLAIMED = "SELECT event_id AS id FROM processed_event WHERE consumer = '{}'"

_OTHER_CLAIMS = """
    SELECT event_id FROM processed_event WHERE consumer = $1 AND event_id > $2 AND event_id <= $3 AND status <> 'DISCARDED'
    EXCEPT SELECT unnest($4::uuid[])
"""

# A change of the roster must show in the roster; a person who was added or removed, in their own row.
_ROSTERS_UNCHANGED = """
    SELECT event_id FROM unnest($1::uuid[], $2::text[], $3::uuid[], $4::int[], $5::uuid[])
        AS change (event_id, topic, labour_id, version, person_id)
    LEFT JOIN roster USING (labour_id) LEFT JOIN roster_member member USING (labour_id, person_id)
    WHERE coalesce(roster.version, 0) < change.version
        OR (topic = 'subscriber.added' AND member.added_version IS DISTINCT FROM change.version)
        OR (topic = 'subscriber.removed' AND member.removed_version IS DISTINCT FROM change.version)
"""

# The people on the roster at the version that the event names, compared with the rows of the ledger, both ways.
_LEDGER_DIFFERENCES = """
    WITH due AS (
        SELECT event_id, person_id FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS event (event_id, labour_id, version)
        JOIN roster_member USING (labour_id)
        WHERE added_version <= version AND (removed_version IS NULL OR removed_version > version)),
    found AS (SELECT event_id, person_id FROM notification
        WHERE event_id > $4 AND event_id <= $5 AND event_type <> 'consent.requested')  -- these are judged in `consents`
    SELECT event_id, person_id, due.event_id IS NOT NULL AS is_due,
        EXISTS (SELECT FROM processed_event p WHERE consumer = 'notification' AND p.event_id = found.event_id) AS is_claimed
    FROM due FULL JOIN found USING (event_id, person_id)
    WHERE found.event_id IS NULL OR (due.event_id IS NULL AND found.event_id > $6)
"""

_STATUS_NOT_TOLD = """
    SELECT status.event_id FROM unnest($1::uuid[], $2::uuid[], $3::int[]) AS status (event_id, notification_id, rank)
    LEFT JOIN told USING (notification_id) WHERE coalesce(told.rank, -1) < status.rank
"""

_ROSTERS = "SELECT labour_id, version FROM roster WHERE labour_id > $1 AND labour_id <= $2"

_ROSTERS_AHEAD = """
    SELECT labour_id FROM unnest($1::uuid[], $2::int[]) AS roster (labour_id, version)
    LEFT JOIN labour ON labour.id = labour_id WHERE coalesce(labour.roster_version, 0) < roster.version
"""

# Events of a labour have an order, and so have the status events of one message; those of different messages have none. Replayed
# events are left out: they were published in order before.
_DISORDER = """
    SELECT event_id, topic, coalesce(aggregate_version <= highest, false) AS is_older
    FROM (
        SELECT event_id, topic, aggregate_version, CASE WHEN replayed_at IS NULL THEN published_at END AS published_at,
            max(aggregate_version) OVER earlier AS highest,
            max(published_at) FILTER (WHERE replayed_at IS NULL) OVER earlier AS latest,
            bool_or(published_at IS NULL AND discarded_at IS NULL AND replayed_at IS NULL) OVER earlier AS is_held
        FROM outbox WINDOW earlier AS (
            PARTITION BY ordering_key, CASE WHEN topic LIKE 'notification.%' AND payload IS JSON
                THEN payload::jsonb ->> 'notification_id' END
            ORDER BY position ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING)) AS event
    WHERE aggregate_version <= highest OR published_at < latest OR (published_at IS NOT NULL AND is_held)
"""


# Returns those of the completed events whose effect is wrong. The ids: a range of `chunks`, and what `_oldest_kept` returns.
JudgeEffects = Callable[[AuditRun, list[Event], UUID, UUID, UUID], Awaitable[set[UUID]]]


async def chunks(lists: Sequence[tuple[asyncpg.Connection, str]], end: UUID) -> AsyncIterator[tuple[UUID, UUID]]:
    """Yield ranges of ids, without the first and with the last, with about `CHUNK` rows of each list (a query for `id`)."""
    low = UUID(int=0)
    while low < end:
        ends = [await database.fetchval(_END_OF_CHUNK.format(query), low, CHUNK - 1) for database, query in lists]
        high = min([end, *filter(None, ends)])
        yield low, high
        low = high


async def reconcile_events(run: AuditRun, source: str, takers: Mapping[str, JudgeEffects]) -> None:
    """Compare every event of one service's outbox with its effect on each of these consumers."""
    upstream, counted = run.databases[source], 0
    kept, total = await _oldest_kept(upstream), await upstream.fetchval("SELECT count(*) FROM outbox")
    lists = [(upstream, "SELECT event_id AS id FROM outbox")]
    lists += [(run.databases[CONSUMERS[taker]], _CLAIMED.format(taker)) for taker in takers]
    if "notification" in takers:
        lists.append((run.databases["notification"], "SELECT event_id AS id FROM notification"))
    async for low, high in chunks(lists, run.end):
        events = {row["event_id"]: row for row in await upstream.fetch(_EVENTS, low, high)}
        for event in events.values():
            judge_publishing(run, source, event)
        run.report.untaken += sum(not run.consumers.get(event["topic"]) for event in events.values())
        for taker, judge_effects in takers.items():
            downstream = run.databases[CONSUMERS[taker]]
            async with downstream.transaction(isolation="repeatable_read", readonly=True):
                completed = await _judge_claims(run, taker, events)
                broken = await judge_effects(run, completed, low, high, kept)
                others = await downstream.fetch(_OTHER_CLAIMS, taker, max(low, kept), high, list(events))
            run.report.stages["effects"].due += len(completed)
            run.report.stages["effects"].done += len(completed) - len(broken)
            if others:
                await _judge_claims_from_nowhere(run, source, taker, [row["event_id"] for row in others])
        counted += len(events)
        run.progress(f"events of {source}", counted, total)
    run.report.committed += counted


async def _oldest_kept(database: asyncpg.Connection) -> UUID:
    """The id from which on all events are still in the outbox. Retention deletes by time of publication, so everything published
    after the oldest row that is left has been kept.
    """
    oldest: datetime | None = await database.fetchval(_OLDEST_KEPT)
    return first_id(oldest or datetime.max.replace(tzinfo=UTC))


async def _judge_claims(run: AuditRun, taker: str, events: Mapping[UUID, Event]) -> list[Event]:
    """Return the events with a completed claim. A claim proves that its event was published, even if it is not marked so."""
    stage = run.report.stages["claimed"]
    wanted = [event_id for event_id, event in events.items() if taker in run.consumers.get(event["topic"], ())]
    [claims] = await run.databases[CONSUMERS[taker]].fetch(_CLAIMS, taker, wanted)
    run.report.repeats += claims["repeats"]
    stage.done += claims["completed"]
    stage.held += len(claims["discarded"])
    run.report.given_up += len(claims["discarded"])
    incomplete = {*claims["processing"], *claims["unclaimed"], *claims["discarded"]}
    stage.due += len(wanted) - len(claims["unclaimed"])
    for event_id in claims["processing"]:
        what = f"The claim of {taker} on this event was committed incomplete, so its effect will never come."
        run.report.add("lost", event_id, "claimed", what)
    for event_id in claims["unclaimed"]:
        if events[event_id]["published_at"]:
            stage.due += 1
            judge_unclaimed(run, taker, events[event_id])
    return [events[event_id] for event_id in wanted if event_id not in incomplete]


async def _judge_claims_from_nowhere(run: AuditRun, source: str, taker: str, event_ids: list[UUID]) -> None:
    """Report claims whose event was never committed: not one committed since the outbox was read, nor deleted by retention."""
    upstream = run.databases[source]
    known = await upstream.fetch("SELECT event_id FROM outbox WHERE event_id = ANY($1)", event_ids)
    kept = await _oldest_kept(upstream)
    for event_id in {*event_ids} - {row["event_id"] for row in known}:
        if event_id > kept:
            what = f"The {taker} consumer has claimed an event that the {source} service never committed."
            run.report.add("unexplained", event_id, "claimed", what)


async def judge_ledger(run: AuditRun, events: list[Event], low: UUID, high: UUID, kept: UUID) -> set[UUID]:
    """Judge rosters and ledger, and return the events whose effect on them is not exactly what it should be."""
    database, report = run.databases["notification"], run.report
    changes = [event for event in events if event["topic"].startswith("subscriber.")]
    notifying = [event for event in events if not event["topic"].startswith("subscriber.")]
    facts = columns(changes, "event_id", "topic", "labour_id", "roster_version", "person_id")
    unchanged = await database.fetch(_ROSTERS_UNCHANGED, *facts)
    broken = without_effect(run, unchanged, "This change of a roster is claimed, and the roster does not show it.")
    known = {event["event_id"] for event in notifying}
    facts = columns(notifying, "event_id", "labour_id", "roster_version")
    for row in await database.fetch(_LEDGER_DIFFERENCES, *facts, low, high, kept):
        event_id, person = row["event_id"], row["person_id"]
        if row["is_due"]:
            what = f"Person {person} was on the roster of this event, and the ledger has no message for them."
            report.add("lost", event_id, "effects", what)
        elif event_id in known:
            what = f"The ledger has a message for person {person}, who was not on the roster of this event."
            report.add("unexplained", event_id, "effects", what)
        elif not row["is_claimed"]:
            what = f"The ledger has a message for person {person} about an event that was not claimed."
            report.add("unexplained", event_id, "effects", what)
        broken |= {event_id} & known
    return broken


async def judge_told(run: AuditRun, events: list[Event], *_: UUID) -> set[UUID]:
    facts = [*columns(events, "event_id", "notification_id"), [STATUS_RANKS[event["topic"]] for event in events]]
    untold = await run.databases["labour"].fetch(_STATUS_NOT_TOLD, *facts)
    return without_effect(run, untold, "This status is claimed, and the Labour service shows an older status or none.")


def without_effect(run: AuditRun, rows: Iterable[Event], what: str) -> set[UUID]:
    event_ids = {row["event_id"] for row in rows}
    for event_id in event_ids:
        run.report.add("lost", event_id, "effects", what)
    return event_ids


def columns(rows: Sequence[Event], *names: str) -> list[list[Any]]:
    return [[row[name] for row in rows] for name in names]


async def compare_rosters(run: AuditRun) -> None:
    """Check that no roster has more changes than its labour made. (Whether it has each claimed one is compared by event.)"""
    copies, originals = run.databases["notification"], run.databases["labour"]
    async for low, high in chunks([(copies, "SELECT labour_id AS id FROM roster")], run.end):
        rosters = await copies.fetch(_ROSTERS, low, high)
        for row in await originals.fetch(_ROSTERS_AHEAD, *columns(rosters, "labour_id", "version")):
            what = "The roster of this labour has changes that the Labour service never made."
            run.report.add("unexplained", row["labour_id"], "effects", what)


async def check_order(run: AuditRun, source: str) -> None:
    """Check that each event of a labour has a higher version than the one before it and was published after it."""
    run.progress(f"order of {source}", 0, None)
    async with run.databases[source].transaction(readonly=True):
        async for row in run.databases[source].cursor(_DISORDER, prefetch=CHUNK):
            how = "recorded after a later version" if row["is_older"] else "published before an earlier event"
            what = f"This {row['topic']} was {how} of its labour."
            run.report.add("out-of-order", row["event_id"], "published", what)
