"""What a process is doing, and what it waits for: the base of its health.

- A *step* is work that ends: a pass of the relay, a batch of the consumer. A step that does not end is a hang.
- An *outage* is a dependency that a loop cannot use now, and retries. It is logged once when it begins and once when it ends.

`servicekit.process` writes the state to the heartbeat file and ends a process that is stuck. There is one state for each process,
hence the module's variables.
"""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Literal, NamedTuple
from weakref import WeakSet

from structlog import get_logger

from messaging.backoff import Backoff

log = get_logger()

STEP_SECONDS = 60.0
LAPSE_SECONDS = 60.0  # without a failure: loops retry more often, so nothing waits for the dependency any more


class Step(NamedTuple):
    doing: str
    since: float


_steps = dict[object, Step]()
_outages = WeakSet["Outage"]()
_failed_at = 0.0  # the last failure of any outage: until then the process was surely not hanging


class State(NamedTuple):
    """`working`: no known outage. `waiting`: for a dependency, which `reason` names. `stuck`: in the step that `reason` names."""

    state: Literal["working", "waiting", "stuck"]
    reason: str


def state(*, step_seconds: float = STEP_SECONDS) -> State:
    """A step counts as stuck after `step_seconds` in which it neither ended nor failed for an outage that it retries."""
    now = time.monotonic()
    if _steps:
        oldest = min(_steps.values(), key=lambda step: step.since)
        if (hangs := now - max(oldest.since, _failed_at)) > step_seconds:
            return State("stuck", f"{oldest.doing} for {hangs:.0f} s")
    if reasons := sorted(outage.reason for outage in _outages if outage.is_current):
        more = [f"and {len(reasons) - 2} more"] if len(reasons) > 2 else []
        return State("waiting", "; ".join(reasons[:2] + more))
    return State("working", "")


def waiting_seconds() -> float:
    """How long the oldest known outage has lasted; 0 if there is none."""
    return max((outage.seconds for outage in _outages if outage.is_current), default=0.0)


@contextmanager
def step(doing: str) -> Iterator[None]:
    key = object()
    _steps[key] = Step(doing, time.monotonic())
    try:
        yield
    finally:
        del _steps[key]


class Outage:
    """One dependency as one loop sees it. The pauses between its retries grow from `base` to `cap` seconds."""

    def __init__(self, dependency: str, *, base: float = 0.1, cap: float = 5.0) -> None:
        self.dependency = dependency
        self._backoff = Backoff(base=base, cap=cap)
        self._since = self._failed_at = 0.0
        self._failures, self._why = 0, ""

    @property
    def is_current(self) -> bool:
        return self._since > 0 and time.monotonic() - self._failed_at < LAPSE_SECONDS

    @property
    def seconds(self) -> float:
        return time.monotonic() - self._since

    @property
    def reason(self) -> str:
        return f"{self.dependency} unavailable for {self.seconds:.0f} s ({self._why})"

    def failed(self, why: str) -> float:
        """Report a failed try. Returns the seconds to wait before the next one."""
        global _failed_at
        begins, self._why = not self.is_current, why
        _failed_at = self._failed_at = time.monotonic()
        self._failures = 1 if begins else self._failures + 1
        if begins:
            self._since = self._failed_at
            _outages.add(self)
            log.warning("dependency unavailable", dependency=self.dependency, reason=why)
        return self._backoff.next()

    def eased(self) -> None:
        """Report that some tries succeed and some fail: the pauses begin at `base` again, and the outage goes on."""
        self._backoff.reset()

    def over(self) -> None:
        """Report a success."""
        if self._since:
            seconds = round(time.monotonic() - self._since, 1)
            log.warning(
                "dependency available again", dependency=self.dependency, seconds=seconds, failures=self._failures
            )
            self._since = 0.0
            _outages.discard(self)
        self._backoff.reset()
