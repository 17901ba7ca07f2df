"""Stores the consent of each number, and applies the owner's answer to the messages that wait for it.

Consumers lock the consents that have no answer yet, in the order of the numbers; an answer locks the consent of its number. So a
message is either inserted before the YES is applied, which then releases it, or after it, and then it does not wait. An answer
and the changes of all messages that it releases or drops are one transaction.
"""

from collections.abc import Collection
from uuid import UUID

import asyncpg

from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger
from notification.delivery.queue import ABOUT
from notification.domain.consent import NEWER_WAITS, OPTED_OUT, REMOVED, TOO_LATE, Consents, ConsentState
from notification.domain.notification import CONSENT_REQUESTED

ASK_AGAIN_DAYS = 30  # after which an ASKED number without an answer may be asked again
RETRY_DAYS = 1  # the same, if the last question did not arrive

_READ = "SELECT phone, state FROM consent WHERE phone = ANY($1::text[])"

# Returns the numbers that this transaction has to ask. It also locks the rows of the other numbers, which the WHERE leaves
# unchanged. The numbers are sorted, so that two batches with the same numbers wait for each other and never deadlock.
_ASK = f"""
    INSERT INTO consent (phone, state, asked_at)
    SELECT phone, 'ASKED', clock_timestamp() FROM unnest($1::text[]) AS wanted (phone) ORDER BY phone
    ON CONFLICT (phone) DO UPDATE SET asked_at = excluded.asked_at
    WHERE consent.state = 'ASKED' AND consent.asked_at < excluded.asked_at - make_interval(days => CASE (
            SELECT state FROM notification WHERE phone = consent.phone AND event_type = '{CONSENT_REQUESTED}'
            ORDER BY created_at DESC LIMIT 1)
        WHEN 'FAILED' THEN {RETRY_DAYS} WHEN 'UNDELIVERED' THEN {RETRY_DAYS} ELSE {ASK_AGAIN_DAYS} END)
    RETURNING phone
"""  # noqa: S608

_GRANT = """
    UPDATE consent SET state = 'GRANTED', answered_at = clock_timestamp(), agreed_at = coalesce(agreed_at, clock_timestamp())
    WHERE phone = $1 RETURNING phone
"""

_REFUSE = """
    INSERT INTO consent (phone, state, answered_at) VALUES ($1, 'REFUSED', clock_timestamp())
    ON CONFLICT (phone) DO UPDATE SET state = excluded.state, answered_at = excluded.answered_at
    WHERE consent.state <> 'REFUSED'
"""

# What the provider refuses because of a STOP was refused at the time of the call: an answer that came after it counts more.
_REFUSE_AT_CALL = """
    INSERT INTO consent (phone, state, answered_at)
    SELECT phone, 'REFUSED', max(sending_at) FROM notification WHERE id = ANY($1::uuid[]) GROUP BY phone ORDER BY phone
    ON CONFLICT (phone) DO UPDATE SET state = excluded.state, answered_at = excluded.answered_at
    WHERE consent.state <> 'REFUSED' AND (consent.answered_at IS NULL OR consent.answered_at < excluded.answered_at)
    RETURNING phone
"""

# The newest message to each person about each labour goes to the queue, if it is not too old and the person is still on the list.
# The other messages are settled with a reason.
_RELEASE = f"""
    WITH waiting AS MATERIALIZED (
        SELECT id, CASE
            WHEN EXISTS (SELECT FROM roster_member AS member WHERE member.labour_id = mine.labour_id
                AND member.person_id = mine.person_id AND member.removed_version IS NOT NULL) THEN '{REMOVED}'
            WHEN created_at < clock_timestamp() - make_interval(secs => $2) THEN '{TOO_LATE}'
            WHEN sequence < max(sequence) FILTER (WHERE created_at >= clock_timestamp() - make_interval(secs => $2))
                OVER (PARTITION BY labour_id, person_id) THEN '{NEWER_WAITS}' END AS reason
        FROM notification AS mine WHERE phone = $1 AND state = 'AWAITING_CONSENT')
    UPDATE notification SET
        state = CASE WHEN reason IS NULL THEN 'PENDING' WHEN reason = '{NEWER_WAITS}' THEN 'SUPERSEDED' ELSE 'FAILED' END,
        failure = reason, next_attempt_at = clock_timestamp(), turn = clock_timestamp(), released_at = clock_timestamp()
    FROM waiting WHERE notification.id = waiting.id AND notification.state = 'AWAITING_CONSENT'
    RETURNING {ABOUT}
"""  # noqa: S608

_DROP = f"""
    UPDATE notification SET state = 'FAILED', failure = '{OPTED_OUT}'
    WHERE phone = ANY($1::text[]) AND state = 'AWAITING_CONSENT' RETURNING {ABOUT}
"""  # noqa: S608

_EXPIRE = f"""
    UPDATE notification SET state = 'FAILED', failure = '{TOO_LATE}'
    WHERE id IN (
        SELECT id FROM notification
        WHERE state = 'AWAITING_CONSENT' AND created_at < clock_timestamp() - make_interval(secs => $1)
        ORDER BY created_at LIMIT 1000 FOR UPDATE SKIP LOCKED)
    RETURNING {ABOUT}
"""  # noqa: S608


async def load(connection: asyncpg.Connection, phones: Collection[str]) -> Consents:
    """The consents of the numbers. Marks as ASKED those that have to be asked: the caller must insert the question to each of
    `ask` in the same transaction.

    Runs one statement, without locks, if every number has answered. A change meanwhile is not missed, because the dispatcher
    reads the consent again before it sends.
    """
    states = await _read(connection, phones)
    unanswered = sorted(phone for phone in phones if states.get(phone, ConsentState.ASKED) is ConsentState.ASKED)
    if not unanswered:
        return Consents(states, ())
    ask = [row["phone"] for row in await connection.fetch(_ASK, unanswered)]
    return Consents(states | await _read(connection, unanswered), ask)


async def _read(connection: asyncpg.Connection, phones: Collection[str]) -> dict[str, ConsentState]:
    return {row["phone"]: ConsentState(row["state"]) for row in await connection.fetch(_READ, list(phones))}


async def grant(uow: UnitOfWork, phone: str, *, validity: float) -> int:
    """Apply a YES, and return how many messages go to the queue. From a number without a consent row it changes nothing.

    A message that has waited for longer than `validity` seconds is dropped.
    """
    if await uow.connection.fetchval(_GRANT, phone) is None:
        return 0
    rows = await uow.connection.fetch(_RELEASE, phone, validity)
    return len(rows) - _emit(uow, rows)


async def refuse(uow: UnitOfWork, phone: str) -> int:
    """Apply a STOP, and return how many waiting messages are dropped. The dispatcher, which reads the consent again, fails those
    in the queue.
    """
    await uow.connection.execute(_REFUSE, phone)
    return _emit(uow, await uow.connection.fetch(_DROP, [phone]))


async def refuse_as_provider(uow: UnitOfWork, notification_ids: Collection[UUID]) -> None:
    """Apply the STOPs because of which the provider has refused these messages, unless the person has answered since the call."""
    phones = [row["phone"] for row in await uow.connection.fetch(_REFUSE_AT_CALL, list(notification_ids))]
    _emit(uow, await uow.connection.fetch(_DROP, phones))


async def expire(uow: UnitOfWork, *, validity: float) -> int:
    """Drop messages that have waited for longer than `validity` seconds, at most 1000 in a call. Returns their number."""
    return _emit(uow, await uow.connection.fetch(_EXPIRE, validity))


def _emit(uow: UnitOfWork, rows: list[asyncpg.Record]) -> int:
    """Emit the event of each message that is settled now, and return the number of those messages."""
    return sum(ledger.emit_event(uow, row) for row in rows)
