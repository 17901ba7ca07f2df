"""A crash inside the process of a test, at a fault point of the code."""

from collections.abc import Iterator
from contextlib import contextmanager

from messaging.faults import FaultPoint


class SimulatedCrash(BaseException):
    """Stands for the end of the process. It is no `Exception`, so the code under test cannot handle it."""


@contextmanager
def crash_at(point: FaultPoint) -> Iterator[None]:
    """Crashes the code in the block when it reaches `point`. Fails if it never does."""

    async def crash() -> None:
        raise SimulatedCrash

    point.arm(crash)
    try:
        yield
    except SimulatedCrash:
        return
    finally:
        point.disarm()
    raise AssertionError(f"the code never reached {point.name}")
