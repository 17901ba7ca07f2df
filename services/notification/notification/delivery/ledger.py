"""The ledger: one row for each message to each person, and every step it may take.

Every step is one conditional UPDATE that names the state (and mostly the attempt) it starts from, so of two that race one wins
and the other changes nothing and knows it. The news of a step goes into the outbox in the same transaction.
"""

import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

from sqlalchemy import (
    Column,
    ColumnElement,
    DateTime,
    Integer,
    MetaData,
    RowMapping,
    SmallInteger,
    Table,
    Text,
    UniqueConstraint,
    Uuid,
    func,
    text,
    update,
)
from sqlalchemy.dialects.postgresql import insert as upsert
from sqlalchemy.ext.asyncio import AsyncSession

from contracts.events import NotificationDelivered, NotificationFailed, NotificationSent
from messaging.outbox import outbox
from messaging.unit_of_work import UnitOfWork
from notification.domain.notification import Lease, Notification, State

metadata = MetaData()
outbox.to_metadata(metadata)

CHANNEL = "notification_pending"  # hints that there is something to send

ledger = Table(
    "notification",
    metadata,
    Column("id", Uuid, primary_key=True),
    Column("event_id", Uuid, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("labour_id", Uuid, nullable=False, index=True),
    Column("person_id", Uuid, nullable=False),
    Column("person_name", Text, nullable=False),
    Column("phone", Text, nullable=False),
    Column("channel", Text, nullable=False),
    Column("body", Text, nullable=False),
    Column("segments", SmallInteger, nullable=False),
    Column("state", Text, nullable=False, server_default="PENDING"),
    Column("attempt", Integer, nullable=False, server_default="0"),
    Column("next_attempt_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("lease_until", DateTime(timezone=True)),
    Column("sid", Text),
    Column("failure", Text),
    Column("failure_code", Integer),
    Column("created_at", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
    Column("sending_at", DateTime(timezone=True)),
    Column("in_doubt_at", DateTime(timezone=True)),
    Column("sent_at", DateTime(timezone=True)),
    Column("delivered_at", DateTime(timezone=True)),
    UniqueConstraint("event_id", "person_id", "channel", name="notification_once_per_person"),
)

suppression = Table(
    "suppression",
    metadata,
    Column("phone", Text, primary_key=True),
    Column("since", DateTime(timezone=True), nullable=False, server_default=func.clock_timestamp()),
)

_FIRST_WRITTEN = {
    **dict.fromkeys(("id", "event_id", "labour_id", "person_id"), "uuid"),
    **dict.fromkeys(("event_type", "person_name", "phone", "channel", "body"), "text"),
    "segments": "smallint",
}

_INSERT = text(f"""
    INSERT INTO notification ({", ".join(_FIRST_WRITTEN)})
    SELECT * FROM unnest({", ".join(f"CAST(:{name} AS {kind}[])" for name, kind in _FIRST_WRITTEN.items())})
    ON CONFLICT (event_id, person_id, channel) DO NOTHING
""")  # noqa: S608

# Oldest first. What another dispatcher is taking at this moment is skipped.
_TAKE = text("""
    UPDATE notification SET state = 'SENDING', attempt = attempt + 1, sending_at = clock_timestamp(),
        lease_until = clock_timestamp() + make_interval(secs => :lease_seconds)
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'PENDING' AND next_attempt_at <= clock_timestamp()
        ORDER BY next_attempt_at, id LIMIT :limit FOR UPDATE SKIP LOCKED)
    RETURNING id, attempt, phone, body, EXISTS (
        SELECT 1 FROM suppression WHERE suppression.phone = notification.phone) AS suppressed
""")

_EXPIRE = text("""
    UPDATE notification SET state = 'IN_DOUBT', in_doubt_at = clock_timestamp(), next_attempt_at = clock_timestamp(),
        failure = 'the sender did not say how it ended'
    WHERE id IN (
        SELECT id FROM notification WHERE state = 'SENDING' AND lease_until < clock_timestamp()
        LIMIT 1000 FOR UPDATE SKIP LOCKED)
""")

# Goes on while the machine sleeps, which `time.monotonic()` does not: a sender that wakes up must know that it is late.
_CLOCK = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)

_UNSETTLED = (State.PENDING, State.SENDING, State.IN_DOUBT)


async def insert_pending(session: AsyncSession, notifications: Sequence[Notification]) -> None:
    columns = {name: [getattr(notification, name) for notification in notifications] for name in _FIRST_WRITTEN}
    await session.execute(_INSERT, columns)


def clock() -> float:
    """Seconds, for deadlines within this process."""
    return time.clock_gettime(_CLOCK)


async def take(session: AsyncSession, *, limit: int, lease_seconds: float, call_within: float) -> list[Lease]:
    """Leases that end in the database after `lease_seconds`; a call may begin only within `call_within` of them."""
    call_before = clock() + call_within  # before the statement: our clock may be early, never late
    rows = await session.execute(_TAKE, {"limit": limit, "lease_seconds": lease_seconds})
    return [Lease(**row, call_before=call_before) for row in rows.mappings()]


async def expire_leases(session: AsyncSession) -> int:
    """A sender that died, hung or lost its database: nobody knows whether it called."""
    result = await session.execute(_EXPIRE)
    return int(getattr(result, "rowcount", 0))


async def put_back(uow: UnitOfWork, lease: Lease, *, retry_in: float, why: str) -> bool:
    """For a message that surely did not go out."""
    return await _step(
        uow,
        lease.id,
        lease.attempt,
        (State.SENDING,),
        state=State.PENDING,
        next_attempt_at=_seconds_from_now(retry_in),
        failure=why,
    )


async def doubt(uow: UnitOfWork, lease: Lease, *, why: str) -> bool:
    return await _step(
        uow,
        lease.id,
        lease.attempt,
        (State.SENDING,),
        state=State.IN_DOUBT,
        in_doubt_at=func.clock_timestamp(),
        next_attempt_at=func.clock_timestamp(),
        failure=why,
    )


async def settle_sent(
    uow: UnitOfWork,
    notification_id: UUID,
    *,
    sid: str | None,
    attempt: int | None = None,
    start: tuple[State, ...] = _UNSETTLED,
) -> bool:
    """The provider has it. Without `attempt`: whichever attempt it was, the person has the message."""
    return await _step(
        uow, notification_id, attempt, start, state=State.SENT, sid=sid, sent_at=func.clock_timestamp(), failure=None
    )


async def settle_failed(
    uow: UnitOfWork,
    notification_id: UUID,
    *,
    attempt: int | None,
    reason: str,
    code: int | None = None,
    start: tuple[State, ...] = (State.SENDING,),
) -> bool:
    return await _step(uow, notification_id, attempt, start, state=State.FAILED, failure=reason, failure_code=code)


async def send_again(uow: UnitOfWork, notification_id: UUID, *, attempt: int | None, pause: float = 0.0) -> bool:
    """From doubt back to the queue: it is surely not there, or a person or the policy said so."""
    return await _step(
        uow, notification_id, attempt, (State.IN_DOUBT,), state=State.PENDING, next_attempt_at=_seconds_from_now(pause)
    )


async def settle_delivered(uow: UnitOfWork, notification_id: UUID) -> bool:
    return await _step(
        uow, notification_id, None, (State.SENT,), state=State.DELIVERED, delivered_at=func.clock_timestamp()
    )


async def settle_undelivered(
    uow: UnitOfWork, notification_id: UUID, *, sid: str, reason: str, code: int | None
) -> bool:
    """Only for the message that the row knows, or if a person declared it sent and it knows none."""
    return await _step(
        uow,
        notification_id,
        None,
        (State.SENT,),
        (ledger.c.sid == sid) | ledger.c.sid.is_(None),
        state=State.UNDELIVERED,
        failure=reason,
        failure_code=code,
    )


async def suppress(session: AsyncSession, phone: str) -> None:
    await session.execute(upsert(suppression).values(phone=phone).on_conflict_do_nothing())


async def unsuppress(session: AsyncSession, phone: str) -> None:
    await session.execute(suppression.delete().where(suppression.c.phone == phone))


async def _step(
    uow: UnitOfWork,
    notification_id: UUID,
    attempt: int | None,
    start: tuple[State, ...],
    *conditions: ColumnElement[bool],
    **values: Any,
) -> bool:
    """False when the row was not where this step starts from: somebody else was first."""
    step = update(ledger).where(ledger.c.id == notification_id, ledger.c.state.in_(start), *conditions)
    if attempt is not None:
        step = step.where(ledger.c.attempt == attempt)
    result = await uow.session.execute(step.values(**values).returning(ledger))
    row = result.mappings().one_or_none()
    if row is not None:
        _tell(uow, row)
    return row is not None


def _seconds_from_now(seconds: float) -> ColumnElement[datetime]:
    return func.clock_timestamp() + func.make_interval(0, 0, 0, 0, 0, 0, seconds)


def _tell(uow: UnitOfWork, row: RowMapping) -> None:
    now = datetime.now(UTC)
    about: dict[str, Any] = {
        "labour_id": row["labour_id"],
        "notification_id": row["id"],
        "cause_id": row["event_id"],
        "cause_type": row["event_type"],
        "person_id": row["person_id"],
        "channel": row["channel"],
    }
    key = str(row["labour_id"])
    match row["state"]:
        case State.SENT:
            uow.emit(NotificationSent(**about, sent_at=row["sent_at"]), key=key, at=now)
        case State.DELIVERED:
            uow.emit(NotificationDelivered(**about, delivered_at=row["delivered_at"]), key=key, at=now)
        case State.FAILED | State.UNDELIVERED:
            uow.emit(NotificationFailed(**about, failed_at=now, reason=row["failure"]), key=key, at=now)
        case _:
            pass  # news only of what is settled
