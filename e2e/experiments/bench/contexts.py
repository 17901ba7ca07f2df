"""Trace contexts of events: each event has a trace of its own, and a tenth of the traces is sampled, as outside of local runs.
An event whose trace is not sampled has no context: the outbox stores none.
"""

from collections.abc import Iterator
from itertools import count
from uuid import uuid4

SAMPLED = 0.1  # the share of the traces
_EVERY = round(1 / SAMPLED)


def contexts() -> Iterator[str | None]:
    for number in count():
        yield None if number % _EVERY else f"00-{uuid4().hex}-{uuid4().hex[:16]}-01"
