"""Counts what an account uses of its allowance for a day.

Each account has one row for each day (UTC). It is written in the transaction of the command, after the labour. So a request that
is rolled back uses nothing, and concurrent requests of one account are counted one after the other. Births and beginnings of
labours are counted but never refused: their row is written together with the commit, without another round trip.

Segments are an estimate. The Notification service writes the texts, and its ledger has the true numbers.
"""

import itertools
from dataclasses import dataclass
from datetime import timedelta

from labour.application.allowances import Allowances
from labour.domain.errors import DayUsedUp
from labour.domain.labour import Labour
from labour.domain.subscriber import SubscriberState
from messaging.unit_of_work import UnitOfWork
from servicekit.gsm7 import as_gsm_7, segments

# Idempotency keys of an account in a day. A constraint of the table enforces it, because a commit returns no count.
KEY_LIMIT = 2000
KEY_CONSTRAINT = "account_day_keys"

# The most characters that a text has beside the names and the text of an announcement
AROUND_AN_ANNOUNCEMENT, AROUND_A_BIRTH, NAME_LENGTH = 60, 100, 30

_USE = """
    INSERT INTO account_day AS used (account, day, labours, people, segments, keys)
    VALUES ($1, (now() AT TIME ZONE 'UTC')::date, $2, $3, $4, $5)
    ON CONFLICT (account, day) DO UPDATE SET
        labours = used.labours + excluded.labours, people = used.people + excluded.people,
        segments = used.segments + excluded.segments, keys = used.keys + excluded.keys
"""
_USE_AND_LOOK = f"""{_USE}
    RETURNING labours, people, segments,
        date_trunc('day', now() AT TIME ZONE 'UTC') + interval '1 day' - now() AT TIME ZONE 'UTC' AS rest_of_the_day
"""
# Every hundredth use deletes up to 100 rows of earlier days, so that the table needs no clean-up job.
_FORGET = """
    DELETE FROM account_day WHERE (account, day) IN (
        SELECT account, day FROM account_day WHERE day < (now() AT TIME ZONE 'UTC')::date LIMIT 100 FOR UPDATE SKIP LOCKED)
"""
_uses = itertools.count()


@dataclass(slots=True)
class Usage:
    """What one request uses. `limited` is True if the request is refused once the day's allowance is used up."""

    labours: int = 0
    people: int = 0
    segments: int = 0
    keys: int = 0
    limited: bool = False
    notifies: bool = False

    def plan(self) -> None:
        self.labours, self.limited = 1, True

    def add_person(self) -> None:
        """Count a person who is added: they may be texted, at least with the question for consent."""
        self.people, self.limited = 1, True

    def announce(self, labour: Labour, text: str) -> None:
        self.segments += _segments(labour, text, AROUND_AN_ANNOUNCEMENT)
        self.limited = True

    def notify(self, labour: Labour, baby_name: str = "") -> None:
        """Count the messages of a beginning or a birth. The key of such a request is not counted: it is never refused."""
        self.segments += _segments(labour, baby_name[:NAME_LENGTH], AROUND_A_BIRTH)
        self.notifies = True

    async def record(self, uow: UnitOfWork, account: str, allowances: Allowances) -> None:
        """Add the counts to the row of the account and day. Raises `DayUsedUp` if that exceeds the allowance."""
        counts = (self.labours, self.people, self.segments, 0 if self.notifies else self.keys)
        if not any(counts):
            return
        if next(_uses) % 100 == 0:
            uow.at_commit(_FORGET)
        if not self.limited:
            uow.at_commit(_USE, account, *counts)
            return
        await uow.flush()  # every request locks the row of its labour first: two requests cannot deadlock
        [row] = await uow.connection.fetch(_USE_AND_LOOK, account, *counts)
        for name in ("labours", "people", "segments"):
            limit: int = getattr(allowances, name)
            if getattr(self, name) and row[name] > limit:
                raise DayUsedUp(name, limit, row["rest_of_the_day"])


def _segments(labour: Labour, text: str, around: int) -> int:
    people = sum(one.state is SubscriberState.APPROVED for one in labour.subscribers)
    return people * segments(as_gsm_7(labour.mother_name[:NAME_LENGTH] + text) + " " * around)


def keys_used_up() -> DayUsedUp:
    return DayUsedUp("keys", KEY_LIMIT, timedelta(days=1))
