"""Ack ids: `<subscription>-<message>-<lease>`, in hexadecimal. A client must treat them as opaque."""

import itertools
import re
import time
from typing import Final

_SHAPE: Final = re.compile(r"([0-9a-f]{1,12})-([0-9a-f]{1,16})-[0-9a-f]{1,20}")
# Starting from the clock, so that an ack id from before a restart is never given out again.
_lease_number = itertools.count(time.time_ns())


def new_ack_id(subscription_id: int, message_id: int) -> str:
    return f"{subscription_id:x}-{message_id:x}-{next(_lease_number):x}"


def message_of(ack_id: str, subscription_id: int) -> int | None:
    """The message that the ack id was given out for, or None if this subscription never gave it out."""
    parts = _SHAPE.fullmatch(ack_id)
    return int(parts[2], 16) if parts and int(parts[1], 16) == subscription_id else None
