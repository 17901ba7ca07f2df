"""The queue of the ledger: the order in which messages are taken, and the limits for one labour, one number and one sender.

| limit                                | counted where                               | beyond it              |
|--------------------------------------|---------------------------------------------|------------------------|
| announcements of a labour that wait  | the insert counts the labour's PENDING rows | FAILED, with its event |
| calls a second of one sender         | `sender_rate`, a row for each sender        | messages wait          |
| segments a day to one number         | `number_day`, a row for each number and day | FAILED, with its event |

Weakness: priorities are strict. While births and beginnings alone use the whole rate, no announcement is sent.
"""

from contracts.events import LabourAnnounced
from notification.domain.notification import (
    BIRTH_FACTOR,
    BIRTH_WAITS,
    CONSENT_REQUESTED,
    OTHER_PRIORITY,
    PRIORITIES,
    TOO_MANY_TODAY,
    TOO_MANY_WAITING,
    TURN_SECONDS,
    Notification,
)
from notification.domain.transitions import NEWER_TAKEN
from notification.storage import column_types, notification_table

TAKING = 0x6665726E_74616B65  # the advisory lock of a take: dispatchers take one after the other

# The columns that the event about a transition needs.
ABOUT = """
    notification.id, notification.labour_id, notification.person_id, notification.channel, notification.event_id,
    notification.event_type, notification.state, notification.failure, notification.traceparent,
    clock_timestamp() AS changed_at"""

# The newer messages to the same person about the same labour.
NEWER = (
    "{newer}.labour_id = {one}.labour_id AND {newer}.person_id = {one}.person_id AND {newer}.sequence > {one}.sequence"
)

UNTAKEN = "('PENDING', 'AWAITING_CONSENT')"

# All rows are one JSON parameter: to encode it here and decode it in the server takes less time than to encode ten arrays here.
#
# `turn` is start-time fair queueing: the first message of a labour has its turn now, and each message of the same kind that waits
# before it moves its turn back by TURN_SECONDS. So labours take turns, and a message is never taken after one of its kind that is
# inserted later than its turn. A labour begins and ends once, so only announcements and questions for consent can be waiting from
# earlier events. Inserts at the same time do not count each other's messages: then two have the same turn.
#
# A message that waits for consent is in no queue. It gets its turn when it is released (`consents.py`).
#
# An announcement beyond the limit is FAILED. It has no sequence then: it must not supersede the older ones, which will be sent.
ANNOUNCED = PRIORITIES[LabourAnnounced.type]
_COLUMNS = Notification.__struct_fields__
_WRITTEN = ", ".join("CASE WHEN NOT is_refused THEN sequence END" if one == "sequence" else one for one in _COLUMNS)
INSERT = f"""
    WITH new AS (
        SELECT *, row_number() OVER (PARTITION BY labour_id, priority ORDER BY sequence) AS number FROM (
            SELECT *, CASE event_type {" ".join(f"WHEN '{one}' THEN {rank}" for one, rank in PRIORITIES.items())}
                ELSE {OTHER_PRIORITY} END AS priority
            FROM json_to_recordset($1::json) AS new ({column_types(notification_table, _COLUMNS)})) AS new),
    counted AS (
        SELECT *, CASE WHEN number = 1 AND priority = {ANNOUNCED} THEN (
                SELECT count(*) FROM notification AS waiting
                WHERE waiting.labour_id = new.labour_id AND waiting.state = 'PENDING' AND waiting.priority = {ANNOUNCED})
            WHEN number = 1 AND priority = {OTHER_PRIORITY} THEN (
                SELECT count(*) FROM notification AS waiting
                WHERE waiting.labour_id = new.labour_id AND waiting.state = 'PENDING' AND waiting.priority = {OTHER_PRIORITY})
            ELSE 0 END AS waiting
        FROM new),
    ranked AS (
        SELECT *, max(waiting) OVER (PARTITION BY labour_id, priority) + number - 1 AS rank FROM counted),
    inserted AS (
        INSERT INTO notification ({", ".join(_COLUMNS)}, priority, turn, state, failure, consent_required)
        SELECT {_WRITTEN}, priority, clock_timestamp() + rank * interval '{TURN_SECONDS} s',
            CASE WHEN is_refused THEN 'FAILED' ELSE $3 END, CASE WHEN is_refused THEN '{TOO_MANY_WAITING}' END, $4
        FROM (SELECT *, rank >= $2 AND priority = {ANNOUNCED} AS is_refused FROM ranked) AS ranked
        ON CONFLICT (event_id, person_id, channel) DO NOTHING
        RETURNING {ABOUT})
    SELECT * FROM inserted WHERE state = 'FAILED'
"""  # noqa: S608

_TODAY = "(statement_timestamp() AT TIME ZONE 'UTC')::date"
_IS_IMPATIENT = f"mine.priority = 0 AND mine.created_at <= statement_timestamp() - interval '{BIRTH_WAITS} s'"

# `head`: the messages that are due, by priority and turn, and have no older one that must go first (the table in
# `domain/notification.py`). SKIP LOCKED leaves out the rows that another dispatcher is taking at this moment.
#
# Two takes at the same time may see different rows: one takes the newer message because the older one is not committed yet, the
# other takes the older one because it sees the newer one still PENDING. So the take of an older message locks the newer ones that
# it sees PENDING (`follower`), and leaves the older one if it does not get all of them: another take has them. It also makes them
# due from now on. A take that began before, and did not see the older one taken, finds that they are not due for it.
#
# Dispatchers take one after the other (`TAKING`), so overlapping takes happen only beside a dispatcher of a release without that
# lock. For the same reason this statement sees what all earlier takes have spent: calls of the sender, which limit `head`, and
# segments of the number and day, which count at the first attempt of a message. It spends its own in the same transaction. If the
# database's clock was set back, `free_at` is in the future: it then counts as if no call had been made.
#
# Planning this statement takes longer than running it, so PostgreSQL must keep one plan, and that plan must be good whatever the
# statistics say. Subqueries and arrays instead of joins always use an index. A LIMIT that the planner knew would cause new plans.
TAKE = f"""
    WITH head AS MATERIALIZED (
        SELECT id, phone, segments, priority, turn, attempt = 0 AS is_first,
            ARRAY(SELECT newer.id FROM notification AS newer
                WHERE {NEWER.format(newer="newer", one="mine")} AND newer.state = 'PENDING') AS followers,
            EXISTS (SELECT FROM notification AS newer
                WHERE {NEWER.format(newer="newer", one="mine")} AND newer.state NOT IN {UNTAKEN}) AS is_late,
            coalesce((SELECT day.segments FROM number_day AS day
                WHERE day.day = {_TODAY} AND day.phone = mine.phone), 0) AS segments_today
        FROM notification AS mine
        WHERE state = 'PENDING' AND next_attempt_at <= statement_timestamp() AND (
            SELECT true FROM notification AS older WHERE {NEWER.format(newer="mine", one="older")} AND (
                (older.state = 'PENDING' AND older.next_attempt_at <= statement_timestamp() AND NOT ({_IS_IMPATIENT}))
                OR (older.state = 'SENDING' AND older.lease_until > statement_timestamp())) LIMIT 1) IS NULL
        ORDER BY priority, turn LIMIT (
            SELECT least($1::integer, floor($4::float8 * least($5::float8, coalesce((
                SELECT extract(epoch FROM statement_timestamp() - free_at) FROM sender_rate
                WHERE sender = $3 AND free_at <= statement_timestamp()), $5)) + 1e-6)))
        FOR UPDATE SKIP LOCKED),
    decided AS MATERIALIZED (
        SELECT id, followers, CASE
            WHEN is_late THEN 'SUPERSEDED'
            WHEN is_first AND segments_today + sum(segments) FILTER (WHERE is_first AND NOT is_late)
                    OVER (PARTITION BY phone ORDER BY priority, turn, id)
                > $6::integer * CASE priority WHEN 0 THEN {BIRTH_FACTOR} ELSE 1 END THEN 'FAILED'
            ELSE 'SENDING' END AS becomes
        FROM head),
    follower AS MATERIALIZED (
        SELECT id FROM notification
        WHERE id = ANY(ARRAY(SELECT unnest(followers) FROM head)) AND state = 'PENDING' FOR UPDATE SKIP LOCKED),
    due_from_now AS (
        UPDATE notification SET next_attempt_at = greatest(next_attempt_at, clock_timestamp())
        WHERE id = ANY(ARRAY(SELECT id FROM follower)) AND id <> ALL(ARRAY(SELECT id FROM head))),
    taken AS (
        UPDATE notification SET
            state = becomes,
            attempt = CASE becomes WHEN 'SENDING' THEN attempt + 1 ELSE attempt END,
            sending_at = CASE becomes WHEN 'SENDING' THEN clock_timestamp() ELSE sending_at END,
            lease_until = CASE becomes WHEN 'SENDING' THEN clock_timestamp() + make_interval(secs => $2) ELSE lease_until END,
            failure = CASE becomes WHEN 'SUPERSEDED' THEN '{NEWER_TAKEN}' WHEN 'FAILED' THEN '{TOO_MANY_TODAY}'
                ELSE failure END,
            sequence = CASE becomes WHEN 'FAILED' THEN NULL ELSE sequence END
        FROM decided
        WHERE notification.id = decided.id AND followers <@ ARRAY(SELECT id FROM follower)
            AND NOT followers && ARRAY(SELECT id FROM head) AND notification.id = ANY(ARRAY(SELECT id FROM head))
        RETURNING {ABOUT}, attempt, phone, body, segments, in_doubt_at,
            CASE WHEN consent_required AND event_type <> '{CONSENT_REQUESTED}'
                THEN NOT EXISTS (SELECT FROM consent WHERE consent.phone = notification.phone AND consent.state = 'GRANTED')
                ELSE EXISTS (SELECT FROM consent WHERE consent.phone = notification.phone AND consent.state = 'REFUSED')
            END AS suppressed),
    spent AS (
        INSERT INTO sender_rate (sender, free_at)
        SELECT $3, clock_timestamp() + make_interval(secs => count(*) / $4 - $5)
        FROM taken WHERE state = 'SENDING' HAVING count(*) > 0
        ON CONFLICT (sender) DO UPDATE
        SET free_at = excluded.free_at + CASE WHEN sender_rate.free_at <= statement_timestamp()
            THEN greatest(sender_rate.free_at + make_interval(secs => $5) - clock_timestamp(), '0') ELSE '0' END),
    counted AS (
        INSERT INTO number_day (day, phone, segments)
        SELECT {_TODAY}, phone, sum(segments) FROM taken WHERE state = 'SENDING' AND attempt = 1 GROUP BY phone ORDER BY phone
        ON CONFLICT (day, phone) DO UPDATE SET segments = number_day.segments + excluded.segments)
    SELECT * FROM taken
"""  # noqa: S608

FORGET_OLD_DAYS = f"""
    DELETE FROM number_day WHERE (day, phone) IN (
        SELECT day, phone FROM number_day WHERE day < {_TODAY} LIMIT 1000 FOR UPDATE SKIP LOCKED)
    RETURNING day
"""  # noqa: S608
