"""How many messages of the ledger wait or are in doubt, and for how long: `messaging.backlog` reads it for the metrics."""

import asyncpg

from messaging.backlog import MOST
from messaging.gauges import backlog
from notification.domain.notification import OTHER_PRIORITY, PRIORITIES

_PRIORITIES = sorted({*PRIORITIES.values(), OTHER_PRIORITY})

PENDING = f"""
    SELECT count(*), extract(epoch FROM clock_timestamp() - min(since) FILTER (
        WHERE next_attempt_at <= clock_timestamp()))::float8
    FROM unnest(ARRAY{_PRIORITIES}::smallint[]) AS p (priority) CROSS JOIN LATERAL (
        SELECT coalesce(n.released_at, n.created_at) AS since, n.next_attempt_at FROM notification n
        WHERE n.state = 'PENDING' AND n.priority = p.priority ORDER BY n.turn LIMIT {MOST}) AS pending
"""  # noqa: S608

IN_DOUBT = f"""
    SELECT count(*), extract(epoch FROM clock_timestamp() - min(in_doubt_at))::float8 FROM (
        SELECT in_doubt_at FROM notification WHERE state = 'IN_DOUBT' ORDER BY next_attempt_at LIMIT {MOST}) AS in_doubt
"""  # noqa: S608


async def read(connection: asyncpg.Connection) -> None:
    [(pending, oldest_pending)] = await connection.fetch(PENDING)
    backlog.set_number("notification.pending", pending)
    backlog.set_age("notification.oldest_pending", oldest_pending)
    [(in_doubt, oldest_in_doubt)] = await connection.fetch(IN_DOUBT)
    backlog.set_number("notification.in_doubt", in_doubt)
    backlog.set_age("notification.oldest_in_doubt", oldest_in_doubt)
