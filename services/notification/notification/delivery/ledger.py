"""The ledger: one row for each message to each person, and the statements that move it from state to state.

A transition is applied by a conditional UPDATE: if the row is not where the transition starts from, because another process was
first, nothing changes. One statement applies any number of transitions. Their events go into the outbox in the same transaction.
The table itself is in `storage.py`, the transitions are in `domain/transitions.py`, and the order in which messages are taken is
in `queue.py`.
"""

import time
from collections.abc import Callable, Collection, Sequence
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from uuid import UUID

import asyncpg
import msgspec

from contracts.events import NotificationDelivered, NotificationFailed, NotificationSent, NotificationSuperseded
from contracts.ids import derived_id
from messaging import metrics
from messaging.retention import first_id
from messaging.unit_of_work import UnitOfWork
from notification.delivery.queue import ABOUT, FORGET_OLD_DAYS, INSERT, NEWER, TAKE, UNTAKEN
from notification.domain.notification import (
    MOST_WAITING,
    InDoubt,
    Lease,
    Limits,
    Notification,
    NotificationState,
    Origin,
)
from notification.domain.transitions import Transition

CHANNEL = "notification_pending"  # the NOTIFY channel that wakes dispatchers
_NO_LIMITS = Limits()

_NEWER_TAKEN = f"""EXISTS (
    SELECT FROM notification AS newer
    WHERE {NEWER.format(newer="newer", one="notification")} AND newer.state NOT IN {UNTAKEN})"""

# Moves the next question `ask_interval` ahead: reconcilers do not ask about the same message at once, and if one dies,
# another asks after that time.
_TAKE_IN_DOUBT = f"""
    UPDATE notification SET next_attempt_at = clock_timestamp() + make_interval(secs => $2)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'IN_DOUBT' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at LIMIT $1 FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, event_type,
        clock_timestamp() >= in_doubt_at + make_interval(secs => $3) AS quarantine_over, {_NEWER_TAKEN} AS newer_taken,
        event_id, labour_id, traceparent
"""  # noqa: S608

_EXPIRE = """
    UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp(), next_attempt_at = clock_timestamp(),
        failure = 'the lease of the dispatcher expired before it recorded an outcome'
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
    RETURNING {ABOUT}, sent_at, delivered_at, released_at, EXISTS (
        SELECT FROM notification AS newer
        WHERE {NEWER.format(newer="newer", one="notification")} AND newer.state = 'PENDING') AS is_followed
"""  # noqa: S608

_MUST_NOT_BE_SENT_AGAIN = f"""
    SELECT EXISTS (SELECT FROM notification WHERE id = $1 AND state = 'IN_DOUBT' AND {_NEWER_TAKEN})
"""  # noqa: S608

# Goes on while the machine is suspended, which `time.monotonic()` does not: a sender that resumes must know that it is late.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


def clock() -> float:
    """Seconds, for deadlines within this process."""
    return time.clock_gettime(_CLOCK)


async def insert_pending(
    uow: UnitOfWork,
    notifications: Sequence[Notification],
    *,
    most_waiting: int = MOST_WAITING,
    consent_required: bool = False,
) -> int:
    """Insert messages as PENDING, but announcements beyond `most_waiting` of their labour as FAILED. Returns the number of these.

    `consent_required` is recorded for the audit: no message with it may be sent to a number without consent.
    """
    rows = msgspec.json.encode(notifications).decode()
    refused = await uow.connection.fetch(INSERT, rows, most_waiting, NotificationState.PENDING, consent_required)
    for row in refused:
        emit_event(uow, row)
    return len(refused)


async def insert_waiting(connection: asyncpg.Connection, notifications: Sequence[Notification]) -> None:
    """Insert messages as AWAITING_CONSENT, for numbers whose owner has not agreed yet. They are in no queue, so no limit counts
    them. `consents.py` releases or drops them.
    """
    rows = msgspec.json.encode(notifications).decode()
    await connection.execute(INSERT, rows, 2**31 - 1, NotificationState.AWAITING_CONSENT, True)


class Taken(NamedTuple):
    leases: list[Lease]
    settled: int  # superseded, or failed at a limit


async def take(
    uow: UnitOfWork,
    *,
    limit: int,
    lease_seconds: float,
    call_within: float,
    limits: Limits = _NO_LIMITS,
    restored_at: datetime | None = None,
) -> Taken:
    """Lease the next messages, for `lease_seconds`. The call about a message must begin within `call_within` seconds.

    Supersedes messages after which a newer one was taken, and fails those to a number that has used up its segments of this day;
    both count towards `limit`. The provider must be asked first about a message of an event before `restored_at`, unless it was
    in doubt since then. The limits hold only if every caller has the lock `queue.TAKING`.
    """
    call_before = clock() + call_within  # read before the statement, so the deadline is early rather than late
    bucket_seconds = max(1.0, 1.0 / limits.per_second)
    rows = await uow.connection.fetch(
        TAKE, limit, lease_seconds, limits.sender, limits.per_second, bucket_seconds, limits.segments_per_number
    )
    leases = [
        Lease(
            row["id"],
            row["attempt"],
            row["phone"],
            row["body"],
            row["suppressed"],
            call_before,
            Origin(row["event_id"], row["labour_id"], row["traceparent"]),
            _ask_first(row, restored_at),
        )
        for row in rows
        if row["state"] == NotificationState.SENDING
    ]
    for row in rows:
        emit_event(uow, row)
    uow.after_commit(lambda: metrics.messages_moved(row["state"] for row in rows))
    return Taken(leases, len(rows) - len(leases))


def _ask_first(row: asyncpg.Record, restored_at: datetime | None) -> bool:
    if restored_at is None or row["event_id"] >= first_id(restored_at):
        return False
    return row["in_doubt_at"] is None or row["in_doubt_at"] < restored_at


async def forget_old_days(connection: asyncpg.Connection) -> int:
    """Deletes a bounded number of the counts of earlier days, and returns it."""
    return len(await connection.fetch(FORGET_OLD_DAYS))


async def take_in_doubt(
    connection: asyncpg.Connection, *, limit: int, ask_interval: float, quarantine: float
) -> list[InDoubt]:
    """Messages in doubt that are due for a question to the provider. Intervals are in seconds."""
    rows = await connection.fetch(_TAKE_IN_DOUBT, limit, ask_interval, quarantine)
    return [InDoubt(*row[:-3])._replace(origin=Origin(*row[-3:])) for row in rows]


async def expire_leases(connection: asyncpg.Connection) -> int:
    """Mark in doubt the messages whose lease has expired: their dispatcher died, hung or lost its database, and it is unknown
    whether it called the provider. Returns their number.
    """
    return len(await connection.fetch(_EXPIRE))


async def apply(
    uow: UnitOfWork, transitions: Collection[Transition], *, wake: Callable[[], None] = lambda: None
) -> set[UUID]:
    """Apply transitions, each of a different message, and return the ids of the messages that changed. `wake` is called after the
    commit if a newer message to the same person waits for one of them.

    Transitions are applied in the order of their ids, so that two sets with the same messages rarely deadlock. A deadlock is a
    transient error: the caller may try again.
    """
    in_order = sorted(transitions, key=attrgetter("id"))
    steps = [(notification_id, " ".join(start), *rest) for notification_id, start, *rest in in_order]
    changed = await uow.connection.fetch(_APPLY, *zip(*steps, strict=True)) if steps else []
    for row in changed:
        emit_event(uow, row)
    uow.after_commit(lambda: _count(changed))
    if any(row["is_followed"] for row in changed):
        uow.after_commit(wake)
    return {row["id"] for row in changed}


def _count(changed: Sequence[asyncpg.Record]) -> None:
    """Passes generators, because without an SDK nothing is counted."""
    metrics.messages_moved(
        (row["state"] for row in changed),
        (
            metrics.Sent(
                row["event_id"], row["event_type"], row["sent_at"].timestamp(), row["traceparent"], row["released_at"]
            )
            for row in changed
            if row["state"] == NotificationState.SENT
        ),
    )


async def apply_one(uow: UnitOfWork, transition: Transition) -> bool:
    """Apply one transition. False if the message is not in a state in which it starts: another process changed it first."""
    return bool(await apply(uow, [transition]))


async def state(connection: asyncpg.Connection, notification_id: UUID) -> str | None:
    """The state of a message; None if there is no such message."""
    found: str | None = await connection.fetchval("SELECT state FROM notification WHERE id = $1", notification_id)
    return found


async def sid(connection: asyncpg.Connection, notification_id: UUID) -> str | None:
    """The provider's id of the message that counts as sent, if there is one."""
    found: str | None = await connection.fetchval("SELECT sid FROM notification WHERE id = $1", notification_id)
    return found


async def must_not_be_sent_again(connection: asyncpg.Connection, notification_id: UUID) -> bool:
    """True for a message in doubt if a newer one to the same person about the same labour was taken to be sent."""
    answer: bool = await connection.fetchval(_MUST_NOT_BE_SENT_AGAIN, notification_id)
    return answer


def emit_event(uow: UnitOfWork, row: asyncpg.Record) -> bool:
    """Emit the event of the message's new state. A message has each of its events once, so the event's id follows from the
    message and the event's type.

    Returns False for a state that has no event. `row` has the columns of `ABOUT`, and the time of a delivery status.
    """
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
            return False  # unsettled states have no event
    event_id = derived_id(row["id"], event.type)
    uow.emit(event, key=str(row["labour_id"]), at=now, id=event_id, traceparent=row["traceparent"])
    return True
