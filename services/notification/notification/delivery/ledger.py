"""The ledger: one row for each message to each person, and every transition between its states.

A transition is one conditional UPDATE that names the state (and mostly the attempt) it starts from. If two race, one changes the
row; the other changes nothing and returns False. The event of a transition goes into the outbox in the same transaction. The
table itself is in `storage.py`.
"""

import time
from collections.abc import Sequence
from dataclasses import fields
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import ColumnElement, RowMapping, func, text, update
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from contracts.events import NotificationDelivered, NotificationFailed, NotificationSent
from messaging.unit_of_work import UnitOfWork
from notification.domain.notification import UNSETTLED, InDoubt, Lease, Notification, NotificationState
from notification.storage import bulk_insert, notification_table, suppression_table

CHANNEL = "notification_pending"  # the NOTIFY channel that wakes dispatchers

_COLUMNS = [field.name for field in fields(Notification)]
_INSERT = bulk_insert(notification_table, _COLUMNS, "(event_id, person_id, channel) DO NOTHING")

# Oldest first. SKIP LOCKED leaves out the rows that another dispatcher is taking at this moment.
_TAKE = text("""
    UPDATE notification SET state = 'SENDING', attempt = attempt + 1, sending_at = clock_timestamp(),
        lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'PENDING' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, body, EXISTS (
        SELECT 1 FROM suppression WHERE suppression.phone = notification.phone) AS suppressed
""")

# Moves the next question `ask_interval` ahead: reconcilers do not ask about the same message at once, and if one dies,
# another asks after that time.
_TAKE_IN_DOUBT = text("""
    UPDATE notification SET next_attempt_at = clock_timestamp() + make_interval(secs => :ask_interval)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'IN_DOUBT' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, event_type,
        clock_timestamp() >= in_doubt_at + make_interval(secs => :quarantine) AS quarantine_over
""")

_EXPIRE = text("""
    UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp(), next_attempt_at = clock_timestamp(),
        failure = 'the sender did not say how it ended'
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'SENDING' AND lease_until < clock_timestamp()
        LIMIT 1000 FOR UPDATE SKIP LOCKED)
""")

# Goes on while the machine is suspended, which `time.monotonic()` does not: a sender that resumes must know that it is late.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_SENDING, _IN_DOUBT, _SENT = (NotificationState.SENDING,), (NotificationState.IN_DOUBT,), (NotificationState.SENT,)


def clock() -> float:
    """Seconds, for deadlines within this process."""
    return time.clock_gettime(_CLOCK)


async def insert_pending(session: AsyncSession, notifications: Sequence[Notification]) -> None:
    await session.execute(_INSERT, {name: [getattr(one, name) for one in notifications] for name in _COLUMNS})


async def take(session: AsyncSession, *, limit: int, lease_seconds: float, call_within: float) -> list[Lease]:
    """Leases that end in the database after `lease_seconds`; a call may begin only within `call_within` seconds."""
    call_before = clock() + call_within  # read before the statement, so the deadline is early rather than late
    rows = await session.execute(_TAKE, {"limit": limit, "lease_seconds": lease_seconds})
    return [Lease(**row, call_before=call_before) for row in rows.mappings()]


async def take_in_doubt(session: AsyncSession, *, limit: int, ask_interval: float, quarantine: float) -> list[InDoubt]:
    """Messages in doubt that are due for a question to the provider. Intervals are in seconds."""
    options = {"limit": limit, "ask_interval": ask_interval, "quarantine": quarantine}
    return [InDoubt(**row) for row in (await session.execute(_TAKE_IN_DOUBT, options)).mappings()]


async def expire_leases(session: AsyncSession) -> int:
    """Marks in doubt what a sender left that died, hung or lost its database: it is unknown whether it called."""
    result = await session.execute(_EXPIRE)
    return int(getattr(result, "rowcount", 0))


async def return_to_queue(uow: UnitOfWork, lease: Lease, *, retry_in: float, reason: str) -> bool:
    """For a message that was certainly not sent."""
    later = _seconds_from_now(retry_in)
    return await _transition(
        uow, lease.id, lease.attempt, _SENDING, NotificationState.PENDING, next_attempt_at=later, failure=reason
    )


async def mark_in_doubt(uow: UnitOfWork, lease: Lease, *, reason: str) -> bool:
    now = func.clock_timestamp()
    changes = {"in_doubt_at": now, "next_attempt_at": now, "failure": reason}
    return await _transition(uow, lease.id, lease.attempt, _SENDING, NotificationState.IN_DOUBT, **changes)


async def record_sent(
    uow: UnitOfWork,
    notification_id: UUID,
    *,
    sid: str | None,
    attempt: int | None = None,
    start: tuple[NotificationState, ...] = UNSETTLED,
) -> bool:
    """The provider has the message. Without `attempt`, any attempt counts: whichever it was, the person gets the message."""
    changes = {"sid": sid, "sent_at": func.clock_timestamp(), "failure": None}
    return await _transition(uow, notification_id, attempt, start, NotificationState.SENT, **changes)


async def record_failed(
    uow: UnitOfWork,
    notification_id: UUID,
    *,
    attempt: int | None,
    reason: str,
    code: int | None = None,
    start: tuple[NotificationState, ...] = _SENDING,
) -> bool:
    changes = {"failure": reason, "failure_code": code}
    return await _transition(uow, notification_id, attempt, start, NotificationState.FAILED, **changes)


async def send_again(uow: UnitOfWork, notification_id: UUID, *, attempt: int | None, pause: float = 0.0) -> bool:
    """Returns a message in doubt to the queue, to be sent after `pause` seconds."""
    later = _seconds_from_now(pause)
    return await _transition(uow, notification_id, attempt, _IN_DOUBT, NotificationState.PENDING, next_attempt_at=later)


async def record_delivered(uow: UnitOfWork, notification_id: UUID) -> bool:
    now = func.clock_timestamp()
    return await _transition(uow, notification_id, None, _SENT, NotificationState.DELIVERED, delivered_at=now)


async def record_undelivered(
    uow: UnitOfWork, notification_id: UUID, *, sid: str, reason: str, code: int | None
) -> bool:
    """Only for the message whose sid the row has. A row without one, which an operator declared sent, accepts any."""
    same_message = (notification_table.c.sid == sid) | notification_table.c.sid.is_(None)
    changes = {"failure": reason, "failure_code": code}
    return await _transition(uow, notification_id, None, _SENT, NotificationState.UNDELIVERED, same_message, **changes)


async def suppress(session: AsyncSession, phone: str) -> None:
    await session.execute(upsert(suppression_table).values(phone=phone).on_conflict_do_nothing())


async def unsuppress(session: AsyncSession, phone: str) -> None:
    await session.execute(suppression_table.delete().where(suppression_table.c.phone == phone))


async def _transition(
    uow: UnitOfWork,
    notification_id: UUID,
    attempt: int | None,
    start: tuple[NotificationState, ...],
    end: NotificationState,
    *conditions: ColumnElement[bool],
    **changes: Any,
) -> bool:
    """False if the row is not where this transition starts from: another process was first."""
    columns = notification_table.c
    statement = update(notification_table).where(columns.id == notification_id, columns.state.in_(start), *conditions)
    if attempt is not None:
        statement = statement.where(columns.attempt == attempt)
    result = await uow.session.execute(statement.values(state=end, **changes).returning(notification_table))
    row = result.mappings().one_or_none()
    if row is not None:
        _emit_event(uow, row)
    return row is not None


def _seconds_from_now(seconds: float) -> ColumnElement[datetime]:
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def _emit_event(uow: UnitOfWork, row: RowMapping) -> None:
    now = datetime.now(UTC)
    key = str(row["labour_id"])
    about: dict[str, Any] = {name: row[name] for name in ("labour_id", "person_id", "channel")}
    about |= {"notification_id": row["id"], "cause_id": row["event_id"], "cause_type": row["event_type"]}
    match row["state"]:
        case NotificationState.SENT:
            uow.emit(NotificationSent(**about, sent_at=row["sent_at"]), key=key, at=now)
        case NotificationState.DELIVERED:
            uow.emit(NotificationDelivered(**about, delivered_at=row["delivered_at"]), key=key, at=now)
        case NotificationState.FAILED | NotificationState.UNDELIVERED:
            uow.emit(NotificationFailed(**about, failed_at=now, reason=row["failure"]), key=key, at=now)
        case _:
            pass  # unsettled states have no event
