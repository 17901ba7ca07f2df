"""The clock of this process.

It is used for times that people read (of an event, of a log line), and for the ids of new events. Decisions about stored data use
the database's clock instead: leases, retries, retention and the replay horizon. `messaging.clock_offset` compares the two.

Environment: FERN_CLOCK_OFFSET, seconds by which this clock is wrong (0). For tests in local mode only. The check of access tokens
does not follow it: their library reads the machine's clock.
"""

import os
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from uuid import UUID

from uuid_utils.compat import uuid7

OFFSET = timedelta()
with suppress(ValueError, OverflowError):  # `servicekit.settings` refuses a value that is not a number
    OFFSET = timedelta(seconds=float(os.environ.get("FERN_CLOCK_OFFSET") or 0))


def now() -> datetime:
    return datetime.now(UTC) + OFFSET


def new_id() -> UUID:
    """A new UUIDv7, which begins with the time of this clock."""
    made = uuid7()
    return UUID(int=made.int + (OFFSET // timedelta(milliseconds=1) << 80)) if OFFSET else made
