"""Measures the time from a request to both SMS, in a whole system that is otherwise idle, one completion at a time."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from e2e.experiments.bench.environment import Environment, WorkMissing
from e2e.experiments.bench.stage import Case, Measured, Options, Round, Stage
from e2e.experiments.bench.stages.sms import accepted
from e2e.experiments.bench.system import start_system

TAPS = 20  # a round
PAUSE = 0.2  # seconds after a tap, so that the system is idle before the next one
WITHIN = 30.0  # seconds


@contextmanager
def start(environment: Environment, options: Options) -> Iterator[Round]:
    taps = options.sized(TAPS, least=2)
    system = start_system(environment)
    load = environment.child("http_load")

    def tap(request: tuple[str, dict[str, str]]) -> tuple[float, float]:
        """Seconds until the answer, and until the provider has accepted both messages."""
        result = load.ask(port=system.port, requests=[request], connections=1)
        deadline, times = time.monotonic() + WITHIN, list[float]()
        while len(times) < 2:
            if time.monotonic() > deadline:
                raise WorkMissing(f"latency: {len(times)} of 2 messages within {WITHIN:g} s.")
            time.sleep(PAUSE)
            times += accepted(system.stand_in)
        return result["p50"], max(times) - result["at"]

    def measure(_: int) -> dict[str, Measured]:
        requests = [system.plan() for _ in range(taps)]
        system.until_idle()
        accepted(system.stand_in)
        answers, deliveries = (sorted(times) for times in zip(*map(tap, requests), strict=True))
        return {
            "answer": Measured(answers[taps // 2] * 1000),
            "p50": Measured(deliveries[taps // 2] * 1000),
            "p95": Measured(deliveries[int(taps * 0.95) - 1 if taps >= 20 else -1] * 1000),
        }

    yield measure


STAGE = Stage(
    "latency",
    "tap to both SMS accepted, idle system",
    {
        "answer": Case("the answer to the tap, p50", "ms"),
        "p50": Case("both SMS accepted, p50", "ms", goal=15, lower=True),
        "p95": Case("both SMS accepted, p95", "ms"),
    },
    start,
)
