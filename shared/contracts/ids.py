"""Ids that follow from their cause, so that a repetition makes the same ones, and a reader can find what belongs together."""

import hashlib
from uuid import UUID


def derived_id(cause: UUID, *parts: object) -> UUID:
    """An id that follows from its cause, so that a repetition makes the same one: a UUIDv7 with the time of the cause, and a hash
    of the cause and the parts in place of the random bits.
    """
    digest = hashlib.sha256(":".join(map(str, (cause, *parts))).encode()).digest()
    high, low = int.from_bytes(digest[:2]) >> 4, int.from_bytes(digest[2:10]) >> 2
    return UUID(int=cause.int >> 80 << 80 | 7 << 76 | high << 64 | 2 << 62 | low)
