"""The ledger: one row for each message to each person, and the statements that move it from state to state.

A transition is applied by a conditional UPDATE: if the row is not where the transition starts from, because another process was
first, nothing changes. One statement applies any number of transitions. Their events go into the outbox in the same transaction.
The table itself is in `storage.py`, and the transitions are in `domain/transitions.py`.
"""

import time
from collections.abc import Callable, Collection, Sequence
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from contracts.events import NotificationDelivered, NotificationFailed, NotificationSent, NotificationSuperseded
from messaging.unit_of_work import UnitOfWork
from notification.domain.notification import InDoubt, Lease, Notification, NotificationState, derived_id
from notification.domain.transitions import NEWER_TAKEN, Transition
from notification.storage import column_types, notification_table

CHANNEL = "notification_pending"  # the NOTIFY channel that wakes dispatchers

# One parameter for all rows: the driver encodes ten arrays in more time than the rows take as JSON, on both sides together.
_COLUMNS = Notification.__struct_fields__
_INSERT = f"""
    INSERT INTO notification ({", ".join(_COLUMNS)})
    SELECT {", ".join(_COLUMNS)} FROM json_to_recordset($1::json) AS new ({column_types(notification_table, _COLUMNS)})
    ON CONFLICT (event_id, person_id, channel) DO NOTHING
"""  # noqa: S608

# What the event about a transition needs.
_ABOUT = """
    notification.id, notification.labour_id, notification.person_id, notification.channel, notification.event_id,
    notification.event_type, notification.state, notification.failure, clock_timestamp() AS changed_at"""

# The newer messages to the same person about the same labour.
_NEWER = (
    "{newer}.labour_id = {one}.labour_id AND {newer}.person_id = {one}.person_id AND {newer}.sequence > {one}.sequence"
)

_NEWER_TAKEN = f"""EXISTS (
    SELECT FROM notification AS newer
    WHERE {_NEWER.format(newer="newer", one="notification")} AND newer.state <> 'PENDING')"""

# `head`: the messages that are due, oldest first, and have no older one that must go first (the table in
# `domain/notification.py`). SKIP LOCKED leaves out the rows that another dispatcher is taking at this moment.
#
# Two takes at the same time may see different rows: one takes the newer message because the older one is not committed yet, the
# other takes the older one because it sees the newer one still PENDING. So the take of an older message locks the newer ones that
# it sees PENDING (`follower`), and leaves the older one if it does not get all of them: another take has them. It also makes them
# due from now on. A take that began before, and did not see the older one taken, finds that they are not due for it.
#
# Planning this statement takes longer than running it, so PostgreSQL must keep one plan, and that plan must be good whatever the
# statistics say. Subqueries and arrays instead of joins always use an index. A LIMIT that the planner knew would cause new plans.
_TAKE = f"""
    WITH head AS MATERIALIZED (
        SELECT id,
            ARRAY(SELECT newer.id FROM notification AS newer
                WHERE {_NEWER.format(newer="newer", one="mine")} AND newer.state = 'PENDING') AS followers,
            EXISTS (SELECT FROM notification AS newer
                WHERE {_NEWER.format(newer="newer", one="mine")} AND newer.state <> 'PENDING') AS is_late
        FROM notification AS mine
        WHERE state = 'PENDING' AND next_attempt_at <= statement_timestamp() AND (
            SELECT true FROM notification AS older WHERE {_NEWER.format(newer="mine", one="older")} AND (
                (older.state = 'PENDING' AND older.next_attempt_at <= statement_timestamp())
                OR (older.state = 'SENDING' AND older.lease_until > statement_timestamp())) LIMIT 1) IS NULL
        ORDER BY next_attempt_at LIMIT (SELECT $1::integer) FOR UPDATE SKIP LOCKED),
    follower AS MATERIALIZED (
        SELECT id FROM notification
        WHERE id = ANY(ARRAY(SELECT unnest(followers) FROM head)) AND state = 'PENDING' FOR UPDATE SKIP LOCKED),
    due_from_now AS (
        UPDATE notification SET next_attempt_at = greatest(next_attempt_at, clock_timestamp())
        WHERE id = ANY(ARRAY(SELECT id FROM follower)))
    UPDATE notification SET
        state = CASE WHEN is_late THEN 'SUPERSEDED' ELSE 'SENDING' END,
        attempt = CASE WHEN is_late THEN attempt ELSE attempt + 1 END,
        sending_at = CASE WHEN is_late THEN sending_at ELSE clock_timestamp() END,
        lease_until = CASE WHEN is_late THEN lease_until ELSE clock_timestamp() + make_interval(secs => $2) END,
        failure = CASE WHEN is_late THEN '{NEWER_TAKEN}' ELSE failure END
    FROM head
    WHERE notification.id = head.id AND followers <@ ARRAY(SELECT id FROM follower)
        AND notification.id = ANY(ARRAY(SELECT id FROM head))
    RETURNING {_ABOUT}, attempt, phone, body,
        EXISTS (SELECT FROM suppression WHERE suppression.phone = notification.phone) AS suppressed
"""  # noqa: S608

# Moves the next question `ask_interval` ahead: reconcilers do not ask about the same message at once, and if one dies,
# another asks after that time.
_TAKE_IN_DOUBT = f"""
    UPDATE notification SET next_attempt_at = clock_timestamp() + make_interval(secs => $2)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'IN_DOUBT' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, event_type,
        clock_timestamp() >= in_doubt_at + make_interval(secs => $3) AS quarantine_over, {_NEWER_TAKEN} AS newer_taken
"""  # noqa: S608

_EXPIRE = """
    UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp(), next_attempt_at = clock_timestamp(),
        failure = 'the sender did not say how it ended'
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'SENDING' AND lease_until < clock_timestamp()
        LIMIT 1000 FOR UPDATE SKIP LOCKED)
    RETURNING id
"""

_APPLY = f"""
    UPDATE notification SET
        state = becomes,
        sid = CASE WHEN becomes = 'SENT' THEN step.sid ELSE notification.sid END,
        failure = CASE WHEN becomes <> 'SENT' THEN coalesce(step.failure, notification.failure) END,
        failure_code = coalesce(step.failure_code, notification.failure_code),
        next_attempt_at = CASE WHEN becomes IN ('PENDING', 'IN_DOUBT')
            THEN clock_timestamp() + make_interval(secs => pause) ELSE next_attempt_at END,
        in_doubt_at = CASE WHEN becomes = 'IN_DOUBT' THEN clock_timestamp() ELSE in_doubt_at END,
        sent_at = CASE WHEN becomes = 'SENT' THEN clock_timestamp() ELSE sent_at END,
        delivered_at = CASE WHEN becomes = 'DELIVERED' THEN clock_timestamp() ELSE delivered_at END
    FROM unnest($1::uuid[], $2::text[], $3::text[], $4::integer[], $5::text[], $6::text[], $7::integer[], $8::float8[])
        AS step (id, starts, becomes, attempt, sid, failure, failure_code, pause)
    WHERE notification.id = step.id
        AND notification.state = ANY(string_to_array(starts, ' '))
        AND notification.attempt = coalesce(step.attempt, notification.attempt)
        AND (becomes <> 'UNDELIVERED' OR notification.sid IS NULL OR notification.sid = step.sid)
    RETURNING {_ABOUT}, sent_at, delivered_at, EXISTS (
        SELECT FROM notification AS newer
        WHERE {_NEWER.format(newer="newer", one="notification")} AND newer.state = 'PENDING') AS is_followed
"""  # noqa: S608

_MUST_NOT_BE_SENT_AGAIN = f"""
    SELECT EXISTS (SELECT FROM notification WHERE id = $1 AND state = 'IN_DOUBT' AND {_NEWER_TAKEN})
"""  # noqa: S608

_SUPPRESS = "INSERT INTO suppression (phone) SELECT unnest($1::text[]) ON CONFLICT DO NOTHING"
_UNSUPPRESS = "DELETE FROM suppression WHERE phone = $1"

# Goes on while the machine is suspended, which `time.monotonic()` does not: a sender that resumes must know that it is late.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, for deadlines within this process."""
    return time.clock_gettime(_CLOCK)


async def insert_pending(connection: asyncpg.Connection, notifications: Sequence[Notification]) -> None:
    await connection.execute(_INSERT, msgspec.json.encode(notifications).decode())


class Taken(NamedTuple):
    leases: list[Lease]
    superseded: int


async def take(uow: UnitOfWork, *, limit: int, lease_seconds: float, call_within: float) -> Taken:
    """Leases that end in the database after `lease_seconds`; a call may begin only within `call_within` seconds.

    Supersedes the messages of which a newer one was taken before. They count towards `limit`.
    """
    call_before = clock() + call_within  # read before the statement, so the deadline is early rather than late
    rows = await uow.connection.fetch(_TAKE, limit, lease_seconds)
    leases = [
        Lease(row["id"], row["attempt"], row["phone"], row["body"], row["suppressed"], call_before)
        for row in rows
        if row["state"] == NotificationState.SENDING
    ]
    for row in rows:
        _emit_event(uow, row)
    return Taken(leases, len(rows) - len(leases))


async def take_in_doubt(
    connection: asyncpg.Connection, *, limit: int, ask_interval: float, quarantine: float
) -> list[InDoubt]:
    """Messages in doubt that are due for a question to the provider. Intervals are in seconds."""
    return [InDoubt(*row) for row in await connection.fetch(_TAKE_IN_DOUBT, limit, ask_interval, quarantine)]


async def expire_leases(connection: asyncpg.Connection) -> int:
    """Marks in doubt what a sender left that died, hung or lost its database: it is unknown whether it called."""
    return len(await connection.fetch(_EXPIRE))


async def apply(
    uow: UnitOfWork, transitions: Collection[Transition], *, wake: Callable[[], None] = lambda: None
) -> set[UUID]:
    """Returns the ids of the messages that changed. Each transition must be of another message. `wake` is called after the
    commit if a newer message to the same person waits for one of them.

    They are applied in the order of their ids, so that two sets with the same messages rarely deadlock. A deadlock is a
    transient error: the caller may try again.
    """
    in_order = sorted(transitions, key=attrgetter("id"))
    steps = [(notification_id, " ".join(start), *rest) for notification_id, start, *rest in in_order]
    changed = await uow.connection.fetch(_APPLY, *zip(*steps, strict=True)) if steps else []
    for row in changed:
        _emit_event(uow, row)
    if any(row["is_followed"] for row in changed):
        uow.after_commit(wake)
    return {row["id"] for row in changed}


async def apply_one(uow: UnitOfWork, transition: Transition) -> bool:
    """False if the message is not where this transition starts from: another process was first."""
    return bool(await apply(uow, [transition]))


async def state(connection: asyncpg.Connection, notification_id: UUID) -> str | None:
    """None if there is no such message."""
    found: str | None = await connection.fetchval("SELECT state FROM notification WHERE id = $1", notification_id)
    return found


async def must_not_be_sent_again(connection: asyncpg.Connection, notification_id: UUID) -> bool:
    """True for a message in doubt if a newer one to the same person about the same labour was taken to be sent."""
    answer: bool = await connection.fetchval(_MUST_NOT_BE_SENT_AGAIN, notification_id)
    return answer


async def suppress(connection: asyncpg.Connection, phones: Collection[str]) -> None:
    await connection.execute(_SUPPRESS, sorted(phones))


async def unsuppress(connection: asyncpg.Connection, phone: str) -> None:
    await connection.execute(_UNSUPPRESS, phone)


def _emit_event(uow: UnitOfWork, row: asyncpg.Record) -> None:
    """A message has each of these events once, so the event's id follows from the message and the event's type."""
    now = row["changed_at"]
    about: dict[str, Any] = {name: row[name] for name in ("labour_id", "person_id", "channel")}
    about |= {"notification_id": row["id"], "cause_id": row["event_id"], "cause_type": row["event_type"]}
    event: NotificationSent | NotificationDelivered | NotificationFailed | NotificationSuperseded
    match row["state"]:
        case NotificationState.SENT:
            event = NotificationSent(**about, sent_at=row["sent_at"])
        case NotificationState.DELIVERED:
            event = NotificationDelivered(**about, delivered_at=row["delivered_at"])
        case NotificationState.FAILED | NotificationState.UNDELIVERED:
            event = NotificationFailed(**about, failed_at=now, reason=row["failure"])
        case NotificationState.SUPERSEDED:
            event = NotificationSuperseded(**about, superseded_at=now, reason=row["failure"])
        case _:
            return  # unsettled states have no event
    uow.emit(event, key=str(row["labour_id"]), at=now, id=derived_id(row["id"], event.type))
