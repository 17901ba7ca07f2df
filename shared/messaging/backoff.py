"""How long to wait before trying again: doubling, capped, with jitter so that many waiters do not return together."""

import random


def delay(attempt: int, *, base: float, cap: float) -> float:
    """Seconds before try number `attempt` + 1; between half and all of base * 2^(attempt-1), at most `cap`."""
    ceiling = min(cap, base * 2.0 ** min(attempt - 1, 30))
    return ceiling * (0.5 + random.random() / 2)  # noqa: S311


class Backoff:
    """Counts failures in a row."""

    def __init__(self, *, base: float = 0.1, cap: float = 5.0) -> None:
        self._base, self._cap, self.failures = base, cap, 0

    def next(self) -> float:
        self.failures += 1
        return delay(self.failures, base=self._base, cap=self._cap)

    def reset(self) -> None:
        self.failures = 0
