"""The consent of each number, and what the owner's answer does to the messages that wait for it.

Consumers lock the consents that they do not find answered, in the order of the numbers; an answer locks its one. So a message
either waits before the YES is applied, and is released by it, or finds the YES. An answer and everything that it releases or
drops are one transaction.
"""

from collections.abc import Collection

import asyncpg

from messaging.unit_of_work import UnitOfWork
from notification.delivery import ledger
from notification.delivery.queue import ABOUT
from notification.domain.consent import NEWER_WAITS, OPTED_OUT, REMOVED, TOO_LATE, Consents, ConsentState

ASK_AGAIN_DAYS = 30  # an ASKED number that did not answer is not asked again before

_READ = "SELECT phone, state FROM consent WHERE phone = ANY($1::text[])"

# Returns the numbers that this transaction has to ask. It locks the other ones, too: a row that the WHERE leaves as it is is
# locked all the same. Sorted, so that two batches with the same numbers wait for each other and never deadlock.
_ASK = f"""
    INSERT INTO consent (phone, state, asked_at)
    SELECT phone, 'ASKED', clock_timestamp() FROM unnest($1::text[]) AS wanted (phone) ORDER BY phone
    ON CONFLICT (phone) DO UPDATE SET asked_at = excluded.asked_at
    WHERE consent.state = 'ASKED' AND consent.asked_at < excluded.asked_at - make_interval(days => {ASK_AGAIN_DAYS})
    RETURNING phone
"""  # noqa: S608

_GRANT = """
    UPDATE consent SET state = 'GRANTED', answered_at = clock_timestamp(), agreed_at = coalesce(agreed_at, clock_timestamp())
    WHERE phone = $1 RETURNING phone
"""

_REFUSE = """
    INSERT INTO consent (phone, state, answered_at)
    SELECT phone, 'REFUSED', clock_timestamp() FROM unnest($1::text[]) AS refused (phone) ORDER BY phone
    ON CONFLICT (phone) DO UPDATE SET state = excluded.state, answered_at = excluded.answered_at
    WHERE consent.state <> 'REFUSED'
"""

# The newest message to each person about each labour goes to the queue, among those that still hold.
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
        failure = reason, next_attempt_at = clock_timestamp(), turn = clock_timestamp()
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
    """Asks the numbers that have to be asked: the caller must send the question to each of `ask` in this transaction.

    One statement if every number has answered. An answer that arrives meanwhile needs no lock then: the dispatcher reads the
    consent once more.
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
    """Returns how many messages go to the queue. A number that was never asked, and never refused, gives no consent.

    A message that has waited for longer than `validity` seconds is dropped.
    """
    if await uow.connection.fetchval(_GRANT, phone) is None:
        return 0
    rows = await uow.connection.fetch(_RELEASE, phone, validity)
    return len(rows) - _emit(uow, rows)


async def refuse(uow: UnitOfWork, phones: Collection[str]) -> int:
    """Returns how many waiting messages are dropped. Those in the queue are left to the dispatcher, which reads the consent."""
    await uow.connection.execute(_REFUSE, sorted(phones))
    return _emit(uow, await uow.connection.fetch(_DROP, sorted(phones)))


async def expire(uow: UnitOfWork, *, validity: float) -> int:
    """Drops messages, at most 1000 at a time, that have waited for longer than `validity` seconds."""
    return _emit(uow, await uow.connection.fetch(_EXPIRE, validity))


def _emit(uow: UnitOfWork, rows: list[asyncpg.Record]) -> int:
    """The event of each message that is settled now. Returns their number."""
    return sum(ledger.emit_event(uow, row) for row in rows)
