"""The statistics in the audit: every counted event has its postings, and every balance is the sum of its postings."""

from uuid import UUID

from fern.audit.reconciliation import chunks, columns, without_effect
from fern.audit.run import AuditRun, Event

_NOT_POSTED = """
    SELECT event_id FROM unnest($1::uuid[]) AS counted (event_id)
    WHERE NOT EXISTS (SELECT FROM statistics_posting posting WHERE posting.event_id = counted.event_id)
"""

_NOT_CLAIMED = """
    SELECT DISTINCT event_id FROM statistics_posting posting WHERE event_id > $1 AND event_id <= $2
        AND NOT EXISTS (SELECT FROM processed_event claim WHERE consumer = 'statistics' AND claim.event_id = posting.event_id)
"""

_DIFFERENCES = """
    SELECT labour_id, what
    FROM (SELECT labour_id, what, amount FROM statistics_balance WHERE labour_id > $1 AND labour_id <= $2) AS balance
    FULL JOIN (SELECT labour_id, what, sum(amount) AS amount FROM statistics_posting
        WHERE labour_id > $1 AND labour_id <= $2 GROUP BY labour_id, what) AS posted USING (labour_id, what)
    WHERE coalesce(balance.amount, 0) <> coalesce(posted.amount, 0)
"""


async def judge_statistics(run: AuditRun, events: list[Event], low: UUID, high: UUID, kept: UUID) -> set[UUID]:
    """Return the events that are claimed and not counted. Those that are counted and not claimed are reported as well."""
    database = run.databases["labour"]
    for row in await database.fetch(_NOT_CLAIMED, max(low, kept), high):
        what = "The statistics have counted this event without a claim."
        run.report.add("unexplained", row["event_id"], "effects", what)
    uncounted = await database.fetch(_NOT_POSTED, *columns(events, "event_id"))
    return without_effect(run, uncounted, "This event is claimed, and the statistics have not counted it.")


async def compare_balances(run: AuditRun) -> None:
    database = run.databases["labour"]
    async for low, high in chunks([(database, "SELECT DISTINCT labour_id AS id FROM statistics_balance")], run.end):
        for row in await database.fetch(_DIFFERENCES, low, high):
            what = f"The balance {row['what']!r} in the statistics of this labour is not the sum of its postings."
            run.report.add("unexplained", row["labour_id"], "effects", what, "fern statistics rebuild")
